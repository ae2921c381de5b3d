// Small dense square matrices, many at a time: products and linear combinations. What expm,
// discretize and spectral_radius are made of, with dense_lu-inl.h.
// Included once per target, inside HWY_BEFORE_NAMESPACE; see Highway's foreach_target.
//
// A working matrix lies in one of two layouts. In `kLanes` a vector holds one entry of as many
// matrices as there are lanes: no lane is ever idle, whatever the size, and pivoting is by lane. In
// rows a vector holds neighbouring entries of one matrix's row, the last one filled up with zeros.
// An entry sees the same operations in the same order in both, so the bits are the same.

#if defined(HOGNOSE_KERNELS_EXPM_DENSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_EXPM_DENSE_INL_H_
#undef HOGNOSE_KERNELS_EXPM_DENSE_INL_H_
#else
#define HOGNOSE_KERNELS_EXPM_DENSE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using DenseTag = hn::ScalableTag<T>;
template <typename T>
using DenseVec = hn::Vec<DenseTag<T>>;

template <typename T>
constexpr size_t kDenseMaxLanes = hn::MaxLanes(DenseTag<T>());

// Vectors in a row of `cols` entries, and the distance between rows and between entries of one.
template <typename T, bool kLanes>
HWY_INLINE size_t DenseVectors(size_t cols) {
  const size_t lanes = hn::Lanes(DenseTag<T>());
  return kLanes ? cols : (cols + lanes - 1) / lanes;
}
template <typename T, bool kLanes>
HWY_INLINE size_t DenseStride(size_t cols) {
  return DenseVectors<T, kLanes>(cols) * hn::Lanes(DenseTag<T>());
}
template <typename T, bool kLanes>
HWY_INLINE size_t DenseStep() {
  return kLanes ? hn::Lanes(DenseTag<T>()) : 1;
}

// An entry for every lane: each matrix's own, or one matrix's for all its columns.
template <typename T, bool kLanes>
HWY_INLINE DenseVec<T> LoadEntry(const T* p) {
  const DenseTag<T> d;
  if constexpr (kLanes) {
    return hn::LoadU(d, p);
  } else {
    return hn::Set(d, *p);
  }
}

enum class Into { kSet, kAdd, kSubtract };

// Entry (i, k) of a left factor is at data + i * row + k * step, row k of a right one at
// data + k * row. Negative distances walk a sum backwards.
template <typename T>
struct DenseLeft {
  const T* data;
  ptrdiff_t row, step;
};
template <typename T>
struct DenseRight {
  const T* data;
  ptrdiff_t row;
};

template <typename T, bool kLanes, Into kInto, size_t kRows, size_t kVecs>
HWY_INLINE void DenseTile(DenseLeft<T> a, DenseRight<T> b, size_t depth, T* c, size_t c_row) {
  const DenseTag<T> d;
  const size_t lanes = hn::Lanes(d);
  DenseVec<T> sum[kRows][kVecs];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kVecs; ++j) {
      sum[i][j] = kInto == Into::kSet ? hn::Zero(d) : hn::LoadU(d, c + i * c_row + j * lanes);
    }
  }
  for (size_t k = 0; k < depth; ++k) {
    DenseVec<T> bv[kVecs];
#pragma GCC unroll 8
    for (size_t j = 0; j < kVecs; ++j) bv[j] = hn::LoadU(d, b.data + j * lanes);
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows; ++i) {
      const auto av = LoadEntry<T, kLanes>(a.data + static_cast<ptrdiff_t>(i) * a.row);
#pragma GCC unroll 8
      for (size_t j = 0; j < kVecs; ++j) {
        sum[i][j] = kInto == Into::kSubtract ? hn::NegMulAdd(av, bv[j], sum[i][j])
                                             : hn::MulAdd(av, bv[j], sum[i][j]);
      }
    }
    a.data += a.step;
    b.data += b.row;
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kVecs; ++j) hn::StoreU(sum[i][j], d, c + i * c_row + j * lanes);
  }
}

// c (+, -)= a b for `rows` rows and `vecs` vectors of columns. The sums of a tile fill 16 of 32
// registers, or 8 of 16.
template <typename T, bool kLanes, Into kInto>
HWY_NOINLINE void DenseProduct(size_t rows, size_t vecs, DenseLeft<T> a, DenseRight<T> b,
                               size_t depth, T* c, size_t c_row) {
  constexpr size_t kRows = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;
  constexpr size_t kVecs = 4;
  const size_t lanes = hn::Lanes(DenseTag<T>());
  const auto columns = [&](auto width, size_t j) HWY_ATTR {
    const DenseRight<T> right = {b.data + j * lanes, b.row};
    size_t i = 0;
    for (; i + kRows <= rows; i += kRows) {
      const DenseLeft<T> left = {a.data + static_cast<ptrdiff_t>(i) * a.row, a.row, a.step};
      DenseTile<T, kLanes, kInto, kRows, width()>(left, right, depth, c + i * c_row + j * lanes,
                                                  c_row);
    }
    for (; i < rows; ++i) {
      const DenseLeft<T> left = {a.data + static_cast<ptrdiff_t>(i) * a.row, a.row, a.step};
      DenseTile<T, kLanes, kInto, 1, width()>(left, right, depth, c + i * c_row + j * lanes, c_row);
    }
  };
  size_t j = 0;
  for (; j + kVecs <= vecs; j += kVecs) columns(std::integral_constant<size_t, kVecs>(), j);
  for (; j + 2 <= vecs; j += 2) columns(std::integral_constant<size_t, 2>(), j);
  if (j < vecs) columns(std::integral_constant<size_t, 1>(), j);
}

// c (+, -)= a b for whole n x n matrices.
template <typename T, bool kLanes, Into kInto = Into::kSet>
HWY_INLINE void Multiply(size_t n, const T* a, const T* b, T* c) {
  const size_t stride = DenseStride<T, kLanes>(n);
  const auto row = static_cast<ptrdiff_t>(stride);
  const auto step = static_cast<ptrdiff_t>(DenseStep<T, kLanes>());
  DenseProduct<T, kLanes, kInto>(n, DenseVectors<T, kLanes>(n), {a, row, step}, {b, row}, n, c,
                                 stride);
}

// out = sum of coef[k] x[k] over `size` numbers, a whole number of vectors. out may be any x[k].
template <typename T, size_t kCount>
HWY_INLINE void Combine(size_t size, const std::array<const T*, kCount>& x,
                        const std::array<T, kCount>& coef, T* out) {
  const DenseTag<T> d;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    auto sum = hn::Mul(hn::Set(d, coef[0]), hn::LoadU(d, x[0] + i));
    for (size_t k = 1; k < kCount; ++k) {
      sum = hn::MulAdd(hn::Set(d, coef[k]), hn::LoadU(d, x[k] + i), sum);
    }
    hn::StoreU(sum, d, out + i);
  }
}

// out = factor[0] x, or each lane's own factor times x. out may be x.
template <typename T, bool kLanes>
HWY_INLINE void Scale(size_t size, const T* factor, const T* x, T* out) {
  const DenseTag<T> d;
  const auto by = LoadEntry<T, kLanes>(factor);
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(by, hn::LoadU(d, x + i)), d, out + i);
  }
}

template <typename T, bool kLanes>
HWY_INLINE void AddToDiagonal(size_t n, T value, T* c) {
  const DenseTag<T> d;
  const size_t stride = DenseStride<T, kLanes>(n), step = DenseStep<T, kLanes>();
  for (size_t i = 0; i < n; ++i) {
    T* at = c + i * stride + i * step;
    if constexpr (kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Set(d, value)), d, at);
    } else {
      *at += value;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
