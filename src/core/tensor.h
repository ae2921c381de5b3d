// Views: structs with public fields that never own memory. Owners are Arena and io::MappedFile.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "core/check.h"
#include "core/dtype.h"

namespace hognose::core {

// A contiguous run of `size` elements.
template <typename T>
struct Vec {
  T* data = nullptr;
  size_t size = 0;

  T& operator[](size_t i) const {
    HOGNOSE_DCHECK(i < size);
    return data[i];
  }
  std::span<T> span() const { return {data, size}; }
  operator Vec<const T>() const { return {data, size}; }  // NOLINT: widening to const
};

// `rows` rows of `cols` contiguous elements; row i begins at data + i * stride (in elements).
template <typename T>
struct Mat {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;

  T* Row(size_t i) const {
    HOGNOSE_DCHECK(i < rows);
    return data + i * stride;
  }
  // Columns [begin, begin + count) of every row.
  Mat Cols(size_t begin, size_t count) const {
    HOGNOSE_DCHECK(begin + count <= cols);
    return {data + begin, rows, count, stride};
  }
  // Rows [begin, begin + count).
  Mat Rows(size_t begin, size_t count) const {
    HOGNOSE_DCHECK(begin + count <= rows);
    return {data + begin * stride, count, cols, stride};
  }
  operator Mat<const T>() const { return {data, rows, cols, stride}; }  // NOLINT
};

// A read-only tensor of any element type, row-major and contiguous, at most 4-D.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  size_t rank = 0;
  std::array<size_t, 4> shape = {};

  size_t elements() const {
    size_t n = 1;
    for (size_t i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  size_t bytes() const { return elements() * Bytes(dtype); }
  std::span<const size_t> dims() const { return {shape.data(), rank}; }
  template <typename T>
  const T* As() const {
    HOGNOSE_CHECK(dtype == kDTypeOf<T>);
    return static_cast<const T*>(data);
  }
};

using TensorMap = std::map<std::string, TensorView, std::less<>>;

// "bf16 [768, 1536]", for messages.
std::string ToString(const TensorView& tensor);
std::string ShapeToString(std::span<const size_t> shape);

}  // namespace hognose::core
