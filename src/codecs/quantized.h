// INT8 and INT4 weights: whole numbers with one scale for every group of columns of a row.
//
//   weight = code * scale;  scale bf16 [M, Kp / group], group 32, 64 or 128
//   INT8   code in [-127, 127]; values i8 [M, Kp], in order of the columns
//   INT4   code in [-8, 7];     values u8 [M, Kp / 2]: byte i of a block of 32 columns holds
//          code + 8 of column i in its low and of column i + 16 in its high four bits
//
// Kp is K rounded up to a multiple of kColumnBlock (and of the group): the columns behind K have
// code 0, so that any K works without tails. A group of zeros has scale 0.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace hognose::codecs {

enum class Encoding : uint8_t { kPlain, kInt8, kInt4 };

inline constexpr size_t kColumnBlock = 64;
inline constexpr size_t kMinGroup = 32;
inline constexpr size_t kMaxGroup = 128;

// A matrix of weights [rows, cols] as it is stored.
struct WeightMatrix {
  Encoding encoding = Encoding::kPlain;
  size_t rows = 0;
  size_t cols = 0;
  core::TensorView values;  // plain: f32, bf16 or f16 [rows, cols]
  core::TensorView scales;  // quantised only
  size_t group = 0;         // quantised only

  WeightMatrix() = default;
  WeightMatrix(const core::TensorView& plain)  // NOLINT: a plain matrix is one
      : rows(plain.shape[0]), cols(plain.shape[1]), values(plain) {}

  size_t bytes() const { return values.bytes() + scales.bytes() * (encoding != Encoding::kPlain); }
};

// "bf16", "int8", ...
constexpr std::string_view Name(const WeightMatrix& w) {
  if (w.encoding == Encoding::kPlain) return core::Name(w.values.dtype);
  return w.encoding == Encoding::kInt8 ? "int8" : "int4";
}

// K rounded up as stored.
constexpr size_t PaddedColumns(size_t cols, size_t group) {
  const size_t block = group > kColumnBlock ? group : kColumnBlock;
  return (cols + block - 1) / block * block;
}
// Bytes of one row of values.
constexpr size_t RowBytes(Encoding encoding, size_t cols, size_t group) {
  return PaddedColumns(cols, group) / (encoding == Encoding::kInt4 ? 2 : 1);
}

// Encodes one row. `values` has RowBytes, `scales` PaddedColumns / group elements. Each scale is
// the one, of a few around the largest magnitude, with the smallest squared error.
void EncodeRow(std::span<const float> row, Encoding encoding, size_t group,
               std::span<uint8_t> values, std::span<core::BFloat16> scales);

// Columns [begin, begin + out.size()) of a row of any matrix as floats: exactly the values that
// products use.
void DecodeColumns(const WeightMatrix& w, size_t row, size_t begin, std::span<float> out);
inline void DecodeRow(const WeightMatrix& w, size_t row, std::span<float> out) {
  DecodeColumns(w, row, 0, out);
}

}  // namespace hognose::codecs
