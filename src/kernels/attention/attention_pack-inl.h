// What a task of attention has near the processor, and how queries, keys and values come there.
// Included once per target, inside HWY_BEFORE_NAMESPACE.

#if defined(HOGNOSE_KERNELS_ATTENTION_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_ATTENTION_PACK_INL_H_
#undef HOGNOSE_KERNELS_ATTENTION_PACK_INL_H_
#else
#define HOGNOSE_KERNELS_ATTENTION_PACK_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/attention/attention_blocks.h"
#include "kernels/product_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using internal::AttentionBlock;
using internal::AttentionCut;
using internal::AttentionTile;
using internal::KeyRange;
using internal::kKeyStride;
using internal::kMaxBlockFloats;
using internal::kMaxBlockRows;
using internal::kMaxTileFloats;
using internal::kMaxTileKeys;
using internal::kMaxTileRows;
using internal::kSpanKeys;
using internal::kUnitKeys;

struct AttentionLocals {
  HWY_ALIGN float q[kMaxBlockFloats];                // times scale log2(e)
  HWY_ALIGN float acc[kMaxBlockFloats];              // a span's sums, in rows of whole tiles
  HWY_ALIGN float keys[kMaxTileKeys];                // units, each transposed: [P, kKeyStride]
  HWY_ALIGN float values[kMaxTileFloats];            // in rows of whole tiles
  HWY_ALIGN float scores[kMaxTileRows * kUnitKeys];  // later weights
  HWY_ALIGN float max[kMaxBlockRows];
  HWY_ALIGN float sum[kMaxBlockRows];
  HWY_ALIGN float kept[kMaxTileRows];  // what a new maximum leaves of the sums
  KeyRange sees[kMaxBlockRows];
};

constexpr size_t TileCols(size_t width) {
  return (width + kProductCols - 1) / kProductCols * kProductCols;
}

inline void PackQueries(const AttentionArgs& a, const AttentionBlock& b, AttentionLocals& v) {
  const DF d;
  const size_t width = a.q.cols / a.heads;
  const double scale = a.scale != 0.0f ? a.scale : 1.0 / std::sqrt(static_cast<double>(width));
  const VF factor = hn::Set(d, static_cast<float>(scale * 1.4426950408889634));  // log2(e)
  for (size_t g = 0; g < b.key_heads; ++g) {
    for (size_t r = 0; r < b.rows; ++r) {
      const float* q = a.q.Row(b.QueryRow(a, r)) + b.Head(a, g, r) * width;
      float* to = v.q + (g * b.rows + r) * width;
      ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
        StoreN(d, hn::Mul(factor, LoadN(d, q + i, count)), to + i, count);
      });
      v.sees[g * b.rows + r] = b.Sees(a, r);
    }
  }
}

// Whether the block's products read values where they are: each once, whole tiles of them.
inline bool InPlace(const AttentionArgs& a, const AttentionBlock& b) {
  return b.rows <= kProductRows && a.q.cols / a.heads % kProductCols == 0;
}

// Asks for keys and values ahead, a line of each at a time, row by row and all heads of the block:
// a head's part of a row is too short for the processor to see a stream.
struct KeysAhead {
  const float *k, *v;  // of the block's heads
  size_t k_stride, v_stride, cols, row, end, col = 0;

  KeysAhead(const AttentionArgs& a, const AttentionBlock& b, size_t begin)
      : k(a.k.data + b.key_begin * a.k.stride + b.key_head * (a.q.cols / a.heads)),
        v(a.v.data + b.key_begin * a.v.stride + b.key_head * (a.q.cols / a.heads)),
        k_stride(a.k.stride),
        v_stride(a.v.stride),
        cols(b.key_heads * (a.q.cols / a.heads)),
        row(begin),
        end(b.keys) {}
  HWY_INLINE void Ask() {
    if (row >= end) return;
    __builtin_prefetch(k + row * k_stride + col, 0, 2);
    __builtin_prefetch(v + row * v_stride + col, 0, 2);
    col += 64 / sizeof(float);
    if (col < cols) return;
    col = 0;
    ++row;
  }
};

// Transposes a vector of rows, 4 columns at a time: blocks of 4 of them lie in a vector's blocks of
// 128 bits. What is asked ahead is as much as is read here.
inline void TransposeKeys(const float* from, size_t from_stride, size_t width, float* to,
                          KeysAhead& ahead) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::RepartitionToWide<DF> dw;
  const auto lane = hn::Iota(d, 0.0f);
  const auto load = [&](const float* f) HWY_ATTR {
    VF v = hn::LoadDup128(d, f);
    for (size_t block = 4; block < hn::MaxLanes(d); block += 4) {
      const auto upper = hn::Ge(lane, hn::Set(d, static_cast<float>(block)));
      v = hn::IfThenElse(upper, hn::LoadDup128(d, f + block * from_stride), v);
    }
    return v;
  };
  for (; c + 4 <= width; c += 4) {
    const float* f = from + c;
    const VF r0 = load(f), r1 = load(f + from_stride), r2 = load(f + 2 * from_stride),
             r3 = load(f + 3 * from_stride);
    const auto l01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
    const auto l23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
    const auto u01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
    const auto u23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
    float* t = to + c * kKeyStride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, l01, l23)), d, t);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, l01, l23)), d, t + kKeyStride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, u01, u23)), d, t + 2 * kKeyStride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, u01, u23)), d, t + 3 * kKeyStride);
    for (size_t i = 0; i < lanes; i += 4) ahead.Ask();
  }
#endif
  for (; c < width; ++c) {
    for (size_t i = 0; i < lanes; ++i) to[c * kKeyStride + i] = from[i * from_stride + c];
    if (c % 16 == 0) ahead.Ask();
  }
}

// Keys [begin, end) of the sequence for key head g of the block; `begin` begins a unit.
inline void PackKeys(const AttentionArgs& a, const AttentionBlock& b, size_t g, size_t begin,
                     size_t end, KeysAhead& ahead, AttentionLocals& v) {
  const DF d;
  const size_t lanes = hn::Lanes(d), width = a.q.cols / a.heads, cols = TileCols(width);
  const size_t column = (b.key_head + g) * width;
  for (size_t t = begin; t < end; t += lanes) {
    const float* from = a.k.Row(b.key_begin + t) + column;
    float* to = v.keys + (t - begin) / kUnitKeys * kKeyStride * width + t % kUnitKeys;
    if (t + lanes <= end) {
      TransposeKeys(from, a.k.stride, width, to, ahead);
    } else {
      TransposeInto(from, a.k.stride, end - t, width, to, kKeyStride);
    }
  }
  const size_t rest = end % kUnitKeys;
  for (size_t p = 0; p < width && rest > 0; ++p) {
    float* row = v.keys + ((end - rest - begin) / kUnitKeys * width + p) * kKeyStride;
    std::fill(row + rest, row + kUnitKeys, 0.0f);
  }
  for (size_t t = begin; t < end && !InPlace(a, b); ++t) {
    const float* from = a.v.Row(b.key_begin + t) + column;
    float* to = v.values + (t - begin) * cols;
    ForVectors(width,
               [&](size_t c, size_t n) HWY_ATTR { StoreN(d, LoadN(d, from + c, n), to + c, n); });
    std::fill(to + width, to + cols, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
