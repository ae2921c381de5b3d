#include "kernels/linear/linear.h"

#include <vector>

#include "core/arena.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using internal::From;
using internal::kTileW;

// Rows of x in a tile: as many as the registers hold beside kTileW rows of w.
constexpr size_t kTileX = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 6 : 2;

// Finish for a whole tile's row.
HWY_INLINE void Finish4(const LinearArgs& a, size_t l, size_t m, size_t rows_w, const float* sums) {
#if HWY_TARGET != HWY_SCALAR
  if (rows_w == kTileW) {
    const hn::FixedTag<float, kTileW> d;
    float* y = a.y.Row(l) + m;
    auto sum = hn::LoadU(d, sums);
    if (a.bias.size != 0) sum = hn::Add(sum, hn::LoadU(d, a.bias.data + m));
    if (a.accumulate) sum = hn::Add(hn::LoadU(d, y), sum);
    return hn::StoreU(sum, d, y);
  }
#endif
  internal::Finish(a, l, m, rows_w, sums);
}

// kX rows of x times kTileW rows of w. Rows of w from `rows_w` on repeat the last one; their sums
// are not stored.
template <size_t kX, From kFrom, typename T>
HWY_INLINE void Tile(const LinearArgs& a, const T* w, size_t l, size_t m, size_t rows_w) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t k_size = a.x.cols;
  const T* w_row[kTileW];
#pragma GCC unroll 8
  for (size_t j = 0; j < kTileW; ++j) w_row[j] = w + (m + std::min(j, rows_w - 1)) * k_size;
  const float* x_row[kX];
#pragma GCC unroll 8
  for (size_t i = 0; i < kX; ++i) x_row[i] = a.x.Row(l + i);
  VF sum[kX][kTileW];
#pragma GCC unroll 8
  for (size_t i = 0; i < kX; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileW; ++j) sum[i][j] = hn::Zero(d);
  }
  size_t k = 0;
  for (; k + lanes <= k_size; k += lanes) {
    VF wv[kTileW];
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileW; ++j) {
      wv[j] = LoadF32(d, w_row[j] + k);
      if (kFrom == From::kMemory) {
        internal::PrefetchAhead(w_row[0], sizeof(T) * (kTileW * k + j * lanes));
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kX; ++i) {
      const VF xv = hn::LoadU(d, x_row[i] + k);
#pragma GCC unroll 8
      for (size_t j = 0; j < kTileW; ++j) sum[i][j] = hn::MulAdd(xv, wv[j], sum[i][j]);
    }
  }
  if (k < k_size) {
    VF wv[kTileW];
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileW; ++j) wv[j] = LoadTail(d, w_row[j] + k, k_size - k);
#pragma GCC unroll 8
    for (size_t i = 0; i < kX; ++i) {
      const VF xv = LoadTail(d, x_row[i] + k, k_size - k);
#pragma GCC unroll 8
      for (size_t j = 0; j < kTileW; ++j) sum[i][j] = hn::MulAdd(xv, wv[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kX; ++i) {
    float sums[kTileW];
    SumLanes4(d, sum[i][0], sum[i][1], sum[i][2], sum[i][3], sums);
    Finish4(a, l + i, m, rows_w, sums);
  }
}

// A tile of 1 to kTileX rows of x.
template <From kFrom, typename T>
void TileRows(const LinearArgs& a, const T* w, size_t l, size_t rows_x, size_t m, size_t rows_w) {
  if (rows_x == 1) return Tile<1, kFrom>(a, w, l, m, rows_w);
  if constexpr (kTileX == 6) {
    if (rows_x == 3) return Tile<3, kFrom>(a, w, l, m, rows_w);
    if (rows_x == 4) return Tile<4, kFrom>(a, w, l, m, rows_w);
    if (rows_x == 5) return Tile<5, kFrom>(a, w, l, m, rows_w);
    if (rows_x == 6) return Tile<6, kFrom>(a, w, l, m, rows_w);
  }
  Tile<2, kFrom>(a, w, l, m, rows_w);
}

template <typename T>
void Rows(const LinearArgs& a, size_t m_begin, size_t m_end) {
  const T* w = a.w.values.As<T>();
  internal::ForTiles(a, kTileX, sizeof(float), m_begin, m_end,
                     [&](size_t l, size_t rows_x, size_t m, size_t rows_w) HWY_ATTR {
                       if (l == 0) return TileRows<From::kMemory>(a, w, l, rows_x, m, rows_w);
                       TileRows<From::kCache>(a, w, l, rows_x, m, rows_w);
                     });
}

void LinearRows(const LinearArgs& a, size_t m_begin, size_t m_end) {
  switch (a.w.values.dtype) {
    case core::DType::kF32:
      return Rows<float>(a, m_begin, m_end);
    case core::DType::kBF16:
      return Rows<core::BFloat16>(a, m_begin, m_end);
    default:
      return Rows<core::Half>(a, m_begin, m_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(LinearRows);

Activations PickActivations(const codecs::WeightMatrix& w, bool exact) {
  if (exact) return Activations::kF32;
  if (w.encoding != codecs::Encoding::kPlain) return Activations::kInt16;
  const bool bf16 = w.values.dtype == core::DType::kBF16 && UseAvx512Bf16();
  return bf16 ? Activations::kBF16 : Activations::kF32;
}

size_t LinearScratch(size_t rows, size_t cols) {
  using internal::QuantizedRows;
  const size_t padded = codecs::PaddedColumns(cols, codecs::kMaxGroup);
  const size_t offsets = padded / codecs::kMinGroup * QuantizedRows::kOffsetLanes;
  const size_t integers =
      rows * (padded * sizeof(int16_t) + offsets * sizeof(int32_t) + sizeof(float));
  // AMX fills its blocks of rows up; its integers have a scale a row.
  const size_t tiles =
      (rows + internal::kAmxRows) * (padded * sizeof(core::BFloat16) + sizeof(float));
  return std::max(integers, tiles) + 2 * core::Arena::kAlignment;
}

void Linear(core::Exec& exec, const LinearArgs& args) noexcept {
  HOGNOSE_DCHECK(args.w.cols == args.x.cols);
  HOGNOSE_DCHECK(args.y.cols == args.w.rows && args.y.rows == args.x.rows);
  HOGNOSE_DCHECK(args.bias.size == 0 || args.bias.size == args.y.cols);
  // Whatever the rows of x, so that a row has the same bits in all company.
  const bool amx = UseAmx() && args.w.rows >= internal::kAmxRows;
  if (args.w.encoding != codecs::Encoding::kPlain) {
    const bool tiles = amx && args.activations == Activations::kInt16;
    return tiles ? internal::LinearAmxQuantized(exec, args) : internal::LinearQuantized(exec, args);
  }
  if (args.activations == Activations::kBF16) {
    return amx ? internal::LinearAmx(exec, args) : internal::LinearAvx512Bf16(exec, args);
  }
  const size_t rows = args.w.rows;
  const size_t step = internal::TaskRows(args.x.cols, core::Bytes(args.w.values.dtype));
  exec.pool.Run((rows + step - 1) / step, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(LinearRows)(args, task * step, std::min(rows, (task + 1) * step));
  });
}

void LinearRef(const LinearArgs& a) {
  std::vector<float> w(a.w.cols);
  for (size_t m = 0; m < a.w.rows; ++m) {
    codecs::DecodeRow(a.w, m, w);
    for (size_t l = 0; l < a.x.rows; ++l) {
      double sum = a.bias.size != 0 ? a.bias.data[m] : 0.0;
      for (size_t k = 0; k < a.x.cols; ++k) sum += static_cast<double>(a.x.Row(l)[k]) * w[k];
      float& y = a.y.Row(l)[m];
      y = static_cast<float>(a.accumulate ? y + sum : sum);
    }
  }
}

}  // namespace hognose::kernels
#endif
