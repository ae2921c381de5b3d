// LU with partial pivoting of the matrices of dense-inl.h, in either layout.
// Included once per target, inside HWY_BEFORE_NAMESPACE; see Highway's foreach_target.

#if defined(HOGNOSE_KERNELS_EXPM_DENSE_LU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_EXPM_DENSE_LU_INL_H_
#undef HOGNOSE_KERNELS_EXPM_DENSE_LU_INL_H_
#else
#define HOGNOSE_KERNELS_EXPM_DENSE_LU_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "hwy/highway.h"
#include "kernels/expm/dense-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

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

// a = P L U in place, with reciprocals on U's diagonal; pivots has DenseStep() numbers a row.
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
      const DenseLeft<T> left = {lu + i * stride + (end - 1) * step, static_cast<ptrdiff_t>(stride),
                                 -static_cast<ptrdiff_t>(step)};
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
