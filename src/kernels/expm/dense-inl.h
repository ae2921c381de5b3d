// Small dense square matrices, many at a time: products, linear combinations, LU with partial
// pivoting. What expm, discretize and spectral_radius are made of.
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

// Swaps row k and each matrix's row pivots[k] below it, `vecs` vectors of them.
template <typename T, bool kLanes>
void SwapRows(size_t k, const T* pivots, size_t vecs, T* x, size_t stride) {
  const DenseTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const size_t members = kLanes ? lanes : 1;
  size_t rows[kDenseMaxLanes<T>];
  size_t count = 0;
  for (size_t m = 0; m < members; ++m) {
    const auto row = static_cast<size_t>(pivots[k * members + m]);
    if (row != k && std::find(rows, rows + count, row) == rows + count) rows[count++] = row;
  }
  if (count == 0) return;
  const auto pivot = LoadEntry<T, kLanes>(pivots + k * members);
  for (size_t j = 0; j < vecs * lanes; j += lanes) {
    auto top = hn::LoadU(d, x + k * stride + j);
    for (size_t r = 0; r < count; ++r) {
      T* at = x + rows[r] * stride + j;
      const auto below = hn::LoadU(d, at);
      const auto swap = hn::Eq(pivot, hn::Set(d, static_cast<T>(rows[r])));
      hn::StoreU(hn::IfThenElse(swap, top, below), d, at);
      top = hn::IfThenElse(swap, below, top);
    }
    hn::StoreU(top, d, x + k * stride + j);
  }
}

// pivots[k] = the row, from k on, of the largest magnitude in column k; the first of equals. A NaN
// is never larger.
template <typename T, bool kLanes>
void FindPivot(const T* a, size_t n, size_t stride, size_t k, T* pivots) {
  const DenseTag<T> d;
  if constexpr (kLanes) {
    const size_t lanes = hn::Lanes(d);
    auto largest = hn::Abs(hn::LoadU(d, a + k * stride + k * lanes));
    auto row = hn::Set(d, static_cast<T>(k));
    for (size_t i = k + 1; i < n; ++i) {
      const auto v = hn::Abs(hn::LoadU(d, a + i * stride + k * lanes));
      const auto larger = hn::Gt(v, largest);
      largest = hn::IfThenElse(larger, v, largest);
      row = hn::IfThenElse(larger, hn::Set(d, static_cast<T>(i)), row);
    }
    hn::StoreU(row, d, pivots + k * lanes);
  } else {
    size_t row = k;
    for (size_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i * stride + k]) > std::abs(a[row * stride + k])) row = i;
    }
    pivots[k] = static_cast<T>(row);
  }
}

// Column k of L, and what it takes from columns (k, end), which in rows lie in the same vector. The
// diagonal keeps the reciprocal.
template <typename T, bool kLanes>
void EliminateColumn(T* a, size_t n, size_t stride, size_t k, size_t end) {
  const DenseTag<T> d;
  const size_t lanes = hn::Lanes(d);
  if constexpr (kLanes) {
    T* top = a + k * stride;
    const auto reciprocal = hn::Div(hn::Set(d, T{1}), hn::LoadU(d, top + k * lanes));
    hn::StoreU(reciprocal, d, top + k * lanes);
    for (size_t i = k + 1; i < n; ++i) {
      T* at = a + i * stride;
      const auto factor = hn::Mul(hn::LoadU(d, at + k * lanes), reciprocal);
      hn::StoreU(factor, d, at + k * lanes);
      for (size_t j = k + 1; j < end; ++j) {
        const auto v = hn::LoadU(d, at + j * lanes);
        hn::StoreU(hn::NegMulAdd(factor, hn::LoadU(d, top + j * lanes), v), d, at + j * lanes);
      }
    }
  } else {
    const size_t begin = k / lanes * lanes;
    T* top = a + k * stride + begin;
    const T reciprocal = T{1} / top[k - begin];
    const auto lane = hn::Iota(d, T{0});
    const auto here = hn::Eq(lane, hn::Set(d, static_cast<T>(k - begin)));
    const auto right = hn::Gt(lane, hn::Set(d, static_cast<T>(k - begin)));
    const auto row = hn::LoadU(d, top);
    const auto u = hn::IfThenElseZero(right, row);
    hn::StoreU(hn::IfThenElse(here, hn::Set(d, reciprocal), row), d, top);
    for (size_t i = k + 1; i < n; ++i) {
      T* at = a + i * stride + begin;
      const auto factor = hn::Set(d, at[k - begin] * reciprocal);
      const auto v = hn::NegMulAdd(factor, u, hn::LoadU(d, at));
      hn::StoreU(hn::IfThenElse(here, factor, v), d, at);
    }
  }
}

// x of rows [begin, n) loses what columns [begin, end) of the unit lower triangle take from it:
// rows up to `end` are solved, those below reduced.
template <typename T, bool kLanes>
void SolveLowerBlock(const T* l, size_t l_stride, size_t n, size_t begin, size_t end, size_t vecs,
                     T* x, size_t x_stride) {
  const auto row = static_cast<ptrdiff_t>(l_stride);
  const auto step = static_cast<ptrdiff_t>(DenseStep<T, kLanes>());
  const DenseRight<T> solved = {x + begin * x_stride, static_cast<ptrdiff_t>(x_stride)};
  const auto reduce = [&](size_t i, size_t rows, size_t depth) HWY_ATTR {
    const DenseLeft<T> left = {l + i * l_stride + begin * DenseStep<T, kLanes>(), row, step};
    DenseProduct<T, kLanes, Into::kSubtract>(rows, vecs, left, solved, depth, x + i * x_stride,
                                             x_stride);
  };
  for (size_t i = begin + 1; i < end; ++i) reduce(i, 1, i - begin);
  if (end < n) reduce(end, n - end, end - begin);
}

// Columns that are eliminated together: a vector of them, or as many as a tile has.
template <typename T, bool kLanes>
HWY_INLINE size_t LuBlock() {
  return kLanes ? 4 : hn::Lanes(DenseTag<T>());
}

// a = P L U in place, with reciprocals on U's diagonal; pivots has DenseStep() numbers for each row.
template <typename T, bool kLanes>
void FactorLu(size_t n, T* a, T* pivots) {
  const size_t stride = DenseStride<T, kLanes>(n), vecs = DenseVectors<T, kLanes>(n);
  const size_t lanes = hn::Lanes(DenseTag<T>());
  for (size_t begin = 0; begin < n; begin += LuBlock<T, kLanes>()) {
    const size_t end = std::min(n, begin + LuBlock<T, kLanes>());
    for (size_t k = begin; k < end; ++k) {
      FindPivot<T, kLanes>(a, n, stride, k, pivots);
      SwapRows<T, kLanes>(k, pivots, vecs, a, stride);
      EliminateColumn<T, kLanes>(a, n, stride, k, end);
    }
    const size_t done = DenseVectors<T, kLanes>(end);
    if (done == vecs) continue;
    SolveLowerBlock<T, kLanes>(a, stride, n, begin, end, vecs - done, a + done * lanes, stride);
  }
}

// x = a^-1 x for `cols` columns, from FactorLu's a.
template <typename T, bool kLanes>
void SolveLu(size_t n, const T* lu, const T* pivots, size_t cols, T* x) {
  const DenseTag<T> d;
  const size_t lanes = hn::Lanes(d), step = DenseStep<T, kLanes>();
  const size_t stride = DenseStride<T, kLanes>(n), x_stride = DenseStride<T, kLanes>(cols);
  const size_t vecs = DenseVectors<T, kLanes>(cols), block = LuBlock<T, kLanes>();
  for (size_t k = 0; k < n; ++k) SwapRows<T, kLanes>(k, pivots, vecs, x, x_stride);
  for (size_t begin = 0; begin < n; begin += block) {
    SolveLowerBlock<T, kLanes>(lu, stride, n, begin, std::min(n, begin + block), vecs, x, x_stride);
  }
  // Upwards; each row's sum begins with its last column, so that blocks of any size give its bits.
  for (size_t begin = (n - 1) / block * block + block; begin > 0;) {
    begin -= block;
    const size_t end = std::min(n, begin + block);
    const DenseRight<T> solved = {x + (end - 1) * x_stride, -static_cast<ptrdiff_t>(x_stride)};
    const auto reduce = [&](size_t i, size_t rows, size_t depth) HWY_ATTR {
      const DenseLeft<T> left = {lu + i * stride + (end - 1) * step,
                                 static_cast<ptrdiff_t>(stride), -static_cast<ptrdiff_t>(step)};
      DenseProduct<T, kLanes, Into::kSubtract>(rows, vecs, left, solved, depth, x + i * x_stride,
                                               x_stride);
    };
    for (size_t i = end; i-- > begin;) {
      reduce(i, 1, end - 1 - i);
      const auto reciprocal = LoadEntry<T, kLanes>(lu + i * stride + i * step);
      for (T* at = x + i * x_stride; at < x + i * x_stride + vecs * lanes; at += lanes) {
        hn::StoreU(hn::Mul(hn::LoadU(d, at), reciprocal), d, at);
      }
    }
    if (begin > 0) reduce(0, begin, end - begin);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
