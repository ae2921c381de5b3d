// The tiles of linear_quantized.cc: vectors of 16-bit integers, and the sums of kTileW rows of w
// with a few rows of x. Included once per target, inside foreach_target; see kernels/simd-inl.h.

#if defined(HOGNOSE_KERNELS_QUANTIZED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_QUANTIZED_TILE_INL_H_
#undef HOGNOSE_KERNELS_QUANTIZED_TILE_INL_H_
#else
#define HOGNOSE_KERNELS_QUANTIZED_TILE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using codecs::Encoding;
using internal::kTileW;
using internal::QuantizedRows;

// No cap on the lanes of a vector.
constexpr size_t kLongest = 64;

// Vectors of 16-bit lanes, at most kCap of them: a vector of INT4 pairs covers two columns a lane
// and must not reach over its group.
template <size_t kCap>
struct Vectors {
  using D16 = hn::CappedTag<int16_t, kCap>;
  using D32 = hn::RepartitionToWide<D16>;
  using DF32 = hn::RebindToFloat<D32>;
  using V16 = hn::Vec<D16>;
  using V32 = hn::Vec<D32>;
};
#if HWY_TARGET == HWY_SCALAR
template <>
struct Vectors<16> {
  using D16 = hn::ScalableTag<int16_t>;
  using D32 = hn::ScalableTag<int32_t>;
  using DF32 = DF;
  using V16 = hn::Vec<D16>;
  using V32 = hn::Vec<D32>;
};
template <>
struct Vectors<kLongest> : Vectors<16> {};
#endif

// Where column `k` stands in a row of 16-bit activations, such that the vectors of codes below meet
// their columns: INT8 keeps the order; for INT4 the columns of the low and of the high bits of a
// vector of bytes follow each other.
HWY_INLINE size_t Position(Encoding encoding, size_t lanes, size_t k) {
  if (encoding == Encoding::kInt8) return k;
  const size_t byte = k / 32 * 16 + k % 16;
  return 2 * (byte - byte % lanes) + (k % 32 >= 16 ? lanes : 0) + byte % lanes;
}

// sum += x * w over pairs of lanes.
template <size_t kCap, class V16 = typename Vectors<kCap>::V16,
          class V32 = typename Vectors<kCap>::V32>
HWY_INLINE V32 MulAddPairs(V16 x, V16 w, V32 sum) {
  const typename Vectors<kCap>::D32 d32;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d32, hn::GetLane(sum) + int32_t{hn::GetLane(x)} * hn::GetLane(w));
#elif HWY_TARGET == HWY_AVX3_DL
  // VPDPWSSD: the same integers in one instruction, where Highway 1.0.3 adds in a second one. Its
  // target has the instruction but not GCC's name for it, hence the assembler.
  (void)d32;
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
  return sum;
#elif HWY_TARGET == HWY_NEON
  // Highway sums the products of the upper lanes apart, NEON need not.
  (void)d32;
  const int32x4_t low = vmlal_s16(sum.raw, vget_low_s16(x.raw), vget_low_s16(w.raw));
  return V32(vmlal_high_s16(low, x.raw, w.raw));
#else
  V32 unused = hn::Zero(d32);
  return hn::ReorderWidenMulAccumulate(d32, x, w, sum, unused);
#endif
}

// Adds the integer products of one group: kX rows of activations at x[i] + k0, kTileW rows of codes
// at w[j].
template <size_t kCap, Encoding kEncoding, size_t kX, class V32 = typename Vectors<kCap>::V32>
HWY_INLINE void SumGroup(const int16_t* const* x, const uint8_t* const* w, size_t k0, size_t group,
                         V32 (&sum)[kX][kTileW]) {
  const typename Vectors<kCap>::D16 d16;
  const hn::Rebind<int8_t, decltype(d16)> d_codes;
  const hn::Rebind<uint8_t, decltype(d16)> d_pairs;
  const size_t lanes = hn::Lanes(d16);
  typename Vectors<kCap>::V16 wv[kTileW];
  if (kEncoding == Encoding::kInt8) {
    for (size_t k = k0; k < k0 + group; k += lanes) {
      for (size_t j = 0; j < kTileW; ++j) {
        wv[j] = hn::PromoteTo(d16, hn::LoadU(d_codes, reinterpret_cast<const int8_t*>(w[j]) + k));
        internal::PrefetchAhead(w[0], kTileW * k + j * lanes);
      }
      for (size_t i = 0; i < kX; ++i) {
        const auto xv = hn::LoadU(d16, x[i] + k);
        for (size_t j = 0; j < kTileW; ++j) sum[i][j] = MulAddPairs<kCap>(xv, wv[j], sum[i][j]);
      }
    }
    return;
  }
  const auto low = hn::Set(d16, 15);
  for (size_t k = k0; k < k0 + group; k += 2 * lanes) {
    for (size_t j = 0; j < kTileW; ++j) {
      wv[j] = hn::PromoteTo(d16, hn::LoadU(d_pairs, w[j] + k / 2));
      internal::PrefetchAhead(w[0], kTileW * k / 2 + j * lanes);
    }
    for (size_t i = 0; i < kX; ++i) {
      const auto x0 = hn::LoadU(d16, x[i] + k);
      const auto x1 = hn::LoadU(d16, x[i] + k + lanes);
      for (size_t j = 0; j < kTileW; ++j) {
        sum[i][j] = MulAddPairs<kCap>(x0, hn::And(wv[j], low), sum[i][j]);
        sum[i][j] = MulAddPairs<kCap>(x1, hn::template ShiftRight<4>(wv[j]), sum[i][j]);
      }
    }
  }
}

// The kTileW rows of w of a tile: where they and their scales begin. Rows from `rows_w` on repeat
// the last one.
struct TileRows {
  const uint8_t* codes[kTileW];
  const core::BFloat16* scales[kTileW];

  TileRows(const LinearArgs& a, const QuantizedRows& q, size_t m, size_t rows_w) {
    const size_t row_bytes = codecs::RowBytes(a.w.encoding, a.w.cols, a.w.group);
    for (size_t j = 0; j < kTileW; ++j) {
      const size_t row = m + std::min(j, rows_w - 1);
      codes[j] = static_cast<const uint8_t*>(a.w.values.data) + row * row_bytes;
      scales[j] = a.w.scales.template As<core::BFloat16>() + row * q.groups;
    }
  }
};

// kX rows of x times kTileW rows of w. sum_group(x, g, sum) adds the integer products of group g;
// scale(j, g) is that of row j of w.
template <size_t kCap, Encoding kEncoding, size_t kX, class SumGroup, class Scale>
HWY_INLINE void Tile(const LinearArgs& a, const QuantizedRows& q, size_t l, size_t m, size_t rows_w,
                     const SumGroup& sum_group, const Scale& scale) {
  const typename Vectors<kCap>::D32 d32;
  const typename Vectors<kCap>::DF32 df;
  const int16_t* x[kX];
#pragma GCC unroll 4
  for (size_t i = 0; i < kX; ++i) x[i] = q.Codes(l + i);
  hn::Vec<decltype(df)> total[kX][kTileW];
#pragma GCC unroll 4
  for (size_t i = 0; i < kX; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kTileW; ++j) total[i][j] = hn::Zero(df);
  }
  for (size_t g = 0; g < q.groups; ++g) {
    hn::Vec<decltype(d32)> sum[kX][kTileW];
#pragma GCC unroll 4
    for (size_t i = 0; i < kX; ++i) {
      // The offset of INT4 stands in one lane, once for all rows of w.
      const auto start =
          kEncoding == Encoding::kInt4 ? hn::LoadU(d32, q.Offset(l + i, g)) : hn::Zero(d32);
#pragma GCC unroll 4
      for (size_t j = 0; j < kTileW; ++j) sum[i][j] = start;
    }
    sum_group(x, g, sum);
#pragma GCC unroll 4
    for (size_t j = 0; j < kTileW; ++j) {
      const auto s = hn::Set(df, scale(j, g));
#pragma GCC unroll 4
      for (size_t i = 0; i < kX; ++i) {
        total[i][j] = hn::MulAdd(hn::ConvertTo(df, sum[i][j]), s, total[i][j]);
      }
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < kX; ++i) {
    float sums[kTileW];
    if constexpr (kCap == kLongest) {
      SumLanes4(df, total[i][0], total[i][1], total[i][2], total[i][3], sums);
    } else {
      for (size_t j = 0; j < kTileW; ++j) sums[j] = SumLanes(df, total[i][j]);
    }
    for (float& sum : sums) sum *= q.scales[l + i];
    internal::Finish(a, l + i, m, rows_w, sums);
  }
}

// Few rows of x: codes become 16-bit integers in registers, for each tile anew.
template <size_t kCap, Encoding kEncoding, size_t kX>
HWY_INLINE void DirectTile(const LinearArgs& a, const QuantizedRows& q, const TileRows& w, size_t l,
                           size_t m, size_t rows_w) {
  Tile<kCap, kEncoding, kX>(
      a, q, l, m, rows_w,
      [&](const auto& x, size_t g, auto& sum)
          HWY_ATTR { SumGroup<kCap, kEncoding, kX>(x, w.codes, g * a.w.group, a.w.group, sum); },
      [&](size_t j, size_t g) HWY_ATTR { return codecs::Decode(w.scales[j][g]); });
}

// Many rows of x: the codes of a tile become 16-bit integers once, vector by vector in the order in
// which SumGroup meets them, the rows of w beside each other.
struct Unpacked {
  HWY_ALIGN int16_t codes[kTileW * internal::kMaxUnpacked];
  float scales[kTileW * internal::kMaxUnpacked / codecs::kMinGroup];  // [groups, kTileW]
};

template <size_t kCap, Encoding kEncoding>
HWY_INLINE void Unpack(const QuantizedRows& q, const TileRows& w, Unpacked& out) {
  const typename Vectors<kCap>::D16 d16;
  const hn::Rebind<int8_t, decltype(d16)> d_codes;
  const hn::Rebind<uint8_t, decltype(d16)> d_pairs;
  const size_t lanes = hn::Lanes(d16);
  for (size_t j = 0; j < kTileW; ++j) {
    for (size_t g = 0; g < q.groups; ++g) {
      out.scales[g * kTileW + j] = codecs::Decode(w.scales[j][g]);
    }
    int16_t* to = out.codes + j * lanes;
    if (kEncoding == Encoding::kInt8) {
      const auto* codes = reinterpret_cast<const int8_t*>(w.codes[j]);
      for (size_t k = 0; k < q.padded; k += lanes) {
        hn::Store(hn::PromoteTo(d16, hn::LoadU(d_codes, codes + k)), d16, to + k * kTileW);
      }
      continue;
    }
    for (size_t k = 0; k < q.padded; k += 2 * lanes) {
      const auto pairs = hn::PromoteTo(d16, hn::LoadU(d_pairs, w.codes[j] + k / 2));
      hn::Store(hn::And(pairs, hn::Set(d16, 15)), d16, to + k * kTileW);
      hn::Store(hn::template ShiftRight<4>(pairs), d16, to + (k + lanes) * kTileW);
    }
  }
}

template <size_t kCap, Encoding kEncoding, size_t kX>
HWY_INLINE void UnpackedTile(const LinearArgs& a, const QuantizedRows& q, const Unpacked& w,
                             size_t l, size_t m, size_t rows_w) {
  const typename Vectors<kCap>::D16 d16;
  const size_t lanes = hn::Lanes(d16);
  const size_t group = a.w.group;
  Tile<kCap, kEncoding, kX>(
      a, q, l, m, rows_w,
      [&](const auto& x, size_t g, auto& sum) HWY_ATTR {
        for (size_t k = g * group; k < (g + 1) * group; k += lanes) {
          typename Vectors<kCap>::V16 wv[kTileW];
#pragma GCC unroll 4
          for (size_t j = 0; j < kTileW; ++j) {
            wv[j] = hn::Load(d16, w.codes + k * kTileW + j * lanes);
          }
#pragma GCC unroll 4
          for (size_t i = 0; i < kX; ++i) {
            const auto xv = hn::LoadU(d16, x[i] + k);
#pragma GCC unroll 4
            for (size_t j = 0; j < kTileW; ++j) {
              sum[i][j] = MulAddPairs<kCap>(xv, wv[j], sum[i][j]);
            }
          }
        }
      },
      [&](size_t j, size_t g) HWY_ATTR { return w.scales[g * kTileW + j]; });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
