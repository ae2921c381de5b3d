// The tile that matrix products over rows of the right side are made of (matmul, and the chunks of
// ssd_scan): a few rows of the left side, broadcast, times a few vectors of the right side's rows.
// Included once per target, inside HWY_BEFORE_NAMESPACE; see Highway's foreach_target.

#if defined(HOGNOSE_KERNELS_PRODUCT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_PRODUCT_TILE_INL_H_
#undef HOGNOSE_KERNELS_PRODUCT_TILE_INL_H_
#else
#define HOGNOSE_KERNELS_PRODUCT_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// Rows and vectors of columns of a tile: its sums take 24 of 32 registers, or 12 of 16.
constexpr size_t kProductRows = 6;
constexpr size_t kProductVecs = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;
constexpr size_t kProductCols = kProductVecs * hn::MaxLanes(DF());

// Element (i, k) of the left side is data[i * row + k * col]: a matrix or its transpose.
struct LeftSide {
  const float* data;
  size_t row;
  size_t col;

  LeftSide From(size_t i, size_t k) const { return {data + i * row + k * col, row, col}; }
};

// c[i, j] = (scale ? scale[i] c[i, j] : 0) + sum_k a(i, k) b[k, j] for kRows rows, kProductCols
// columns, k < depth. The scaled c comes to the sum last: by then it has arrived from its cache.
template <size_t kRows>
HWY_INLINE void ProductTile(LeftSide a, const float* b, size_t b_stride, size_t depth, float* c,
                            size_t c_stride, const float* scale) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF sum[kRows][kProductVecs];
  const float* row[kRows];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
    row[i] = a.data + i * a.row;
#pragma GCC unroll 8
    for (size_t j = 0; j < kProductVecs; ++j) sum[i][j] = hn::Zero(d);
    __builtin_prefetch(c + i * c_stride, 1);
  }
  for (size_t k = 0; k < depth; ++k) {
    VF bv[kProductVecs];
#pragma GCC unroll 8
    for (size_t j = 0; j < kProductVecs; ++j) bv[j] = hn::LoadU(d, b + k * b_stride + j * lanes);
    const size_t at = k * a.col;
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows; ++i) {
      const VF av = hn::Set(d, row[i][at]);
#pragma GCC unroll 8
      for (size_t j = 0; j < kProductVecs; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
    for (size_t j = 0; j < kProductVecs; ++j) {
      float* to = c + i * c_stride + j * lanes;
      VF v = sum[i][j];
      if (scale != nullptr) v = hn::MulAdd(hn::Set(d, scale[i]), hn::LoadU(d, to), v);
      hn::StoreU(v, d, to);
    }
  }
}

// The same for 1 to kProductRows rows.
HWY_INLINE void ProductTileRows(size_t rows, LeftSide a, const float* b, size_t b_stride,
                                size_t depth, float* c, size_t c_stride, const float* scale) {
  switch (rows) {
    case 1:
      return ProductTile<1>(a, b, b_stride, depth, c, c_stride, scale);
    case 2:
      return ProductTile<2>(a, b, b_stride, depth, c, c_stride, scale);
    case 3:
      return ProductTile<3>(a, b, b_stride, depth, c, c_stride, scale);
    case 4:
      return ProductTile<4>(a, b, b_stride, depth, c, c_stride, scale);
    case 5:
      return ProductTile<5>(a, b, b_stride, depth, c, c_stride, scale);
    default:
      return ProductTile<kProductRows>(a, b, b_stride, depth, c, c_stride, scale);
  }
}

// A product of small matrices near the processor: c [rows, cols] (+)= a b. The rows of b and c have
// room for whole tiles. range(i, j) is the [begin, end) of k for the tile whose first row is i and
// whose first column is j, for triangular matrices; an empty one only scales c.
template <typename Range>
HWY_INLINE void SmallProduct(size_t rows, size_t cols, LeftSide a, const float* b, size_t b_stride,
                             float* c, size_t c_stride, const float* scale, const Range& range) {
  for (size_t j = 0; j < cols; j += kProductCols) {
    for (size_t i = 0; i < rows; i += kProductRows) {
      const auto [begin, end] = range(i, j);
      ProductTileRows(std::min(kProductRows, rows - i), a.From(i, begin), b + begin * b_stride + j,
                      b_stride, end - begin, c + i * c_stride + j, c_stride,
                      scale == nullptr ? nullptr : scale + i);
    }
  }
}

// to[c, r] = from[r, c].
inline void TransposeInto(const float* from, size_t from_stride, size_t rows, size_t cols,
                          float* to, size_t to_stride) {
  size_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  // Four by four: two rounds of interleaving.
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  for (; r + 4 <= rows; r += 4) {
    const float* f = from + r * from_stride;
    size_t c = 0;
    for (; c + 4 <= cols; c += 4) {
      const auto r0 = hn::LoadU(d, f + c), r1 = hn::LoadU(d, f + from_stride + c);
      const auto r2 = hn::LoadU(d, f + 2 * from_stride + c);
      const auto r3 = hn::LoadU(d, f + 3 * from_stride + c);
      const auto l01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
      const auto l23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
      const auto u01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
      const auto u23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
      float* t = to + c * to_stride + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, l01, l23)), d, t);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, l01, l23)), d, t + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, u01, u23)), d, t + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, u01, u23)), d, t + 3 * to_stride);
    }
    for (; c < cols; ++c) {
      for (size_t i = 0; i < 4; ++i) to[c * to_stride + r + i] = f[i * from_stride + c];
    }
  }
#endif
  for (; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
