#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/cpu.h"
#include "kernels/attention/attention_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/product_tile-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_ATTENTION_ONCE_
#define HOGNOSE_ATTENTION_ONCE_
using internal::AttentionBlock;
using internal::AttentionTile;
using internal::KeyRange;
using internal::kBlockRows;
using internal::kSpanKeys;
using internal::kUnitKeys;
// Below every finite score: no maximum yet. Finite, so that a score of -infinity less it is -infinity.
constexpr float kLowestScore = std::numeric_limits<float>::lowest();

// What a span leaves of a row: y is acc / sum if there is no other.
struct Partial {
  float max;  // of the scores, in units of log2
  float sum;  // of 2^(score - max)
  const float* acc;  // [P]: of 2^(score - max) v
};
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

struct Locals {
  HWY_ALIGN float q[kBlockRows * kMaxAttentionWidth];    // times scale log2(e)
  HWY_ALIGN float acc[kBlockRows * kMaxAttentionWidth];  // a span's sums, in rows of whole tiles
  HWY_ALIGN float keys[internal::kMaxTileFloats];        // units, each transposed: [P, kUnitKeys]
  HWY_ALIGN float values[internal::kMaxTileFloats];      // in rows of whole tiles
  HWY_ALIGN float scores[internal::kMaxTileRows * kUnitKeys];  // later weights
  HWY_ALIGN float max[kBlockRows];
  HWY_ALIGN float sum[kBlockRows];
  HWY_ALIGN float kept[internal::kMaxTileRows];  // what a new maximum leaves of the sums
  KeyRange sees[kBlockRows];
};

constexpr size_t TileCols(size_t width) {
  return (width + kProductCols - 1) / kProductCols * kProductCols;
}

void PackQueries(const AttentionArgs& a, const AttentionBlock& b, Locals& v) {
  const DF d;
  const size_t width = a.q.cols / a.heads;
  const double scale = a.scale != 0.0f ? a.scale : 1.0 / std::sqrt(static_cast<double>(width));
  const VF factor = hn::Set(d, static_cast<float>(scale * 1.4426950408889634));  // log2(e)
  for (size_t r = 0; r < b.rows; ++r) {
    const float* q = a.q.Row(b.QueryRow(a, r)) + b.Head(a, r) * width;
    ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
      StoreN(d, hn::Mul(factor, LoadN(d, q + i, count)), v.q + r * width + i, count);
    });
    v.sees[r] = b.Sees(a, r);
  }
}

// Keys [begin, end) of the sequence; `begin` begins a unit.
void PackKeys(const AttentionArgs& a, const AttentionBlock& b, size_t begin, size_t end, Locals& v) {
  const size_t width = a.q.cols / a.heads, cols = TileCols(width), column = b.key_head * width;
  for (size_t unit = begin; unit < end; unit += kUnitKeys) {
    const size_t count = std::min(kUnitKeys, end - unit);
    float* keys = v.keys + (unit - begin) * width;
    TransposeInto(a.k.Row(b.key_begin + unit) + column, a.k.stride, count, width, keys, kUnitKeys);
    for (size_t p = 0; p < width && count < kUnitKeys; ++p) {
      std::fill(keys + p * kUnitKeys + count, keys + (p + 1) * kUnitKeys, 0.0f);
    }
  }
  for (size_t t = begin; t < end; ++t) {
    float* to = v.values + (t - begin) * cols;
    std::copy_n(a.v.Row(b.key_begin + t) + column, width, to);
    std::fill(to + width, to + cols, 0.0f);
  }
}

// Scores of rows [r, r + rows) to weights 2^(score - maximum); their maxima and sums move on.
void TakeWeights(size_t r, size_t rows, Locals& v) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < rows; ++i) {
    const float* scores = v.scores + i * kUnitKeys;
    VF max = hn::Load(d, scores);
    for (size_t j = lanes; j < kUnitKeys; j += lanes) max = hn::Max(max, hn::Load(d, scores + j));
    const float old = v.max[r + i];
    v.max[r + i] = std::max(old, hn::GetLane(hn::MaxOfLanes(d, max)));
    v.kept[i] = old - v.max[r + i];
  }
  for (size_t i = 0; i < rows; i += lanes) {
    hn::Store(Exp2NonPositive(d, hn::Load(d, v.kept + i)), d, v.kept + i);
  }
  for (size_t i = 0; i < rows; ++i) {
    float* scores = v.scores + i * kUnitKeys;
    const VF max = hn::Set(d, v.max[r + i]);
    VF sum = hn::Zero(d);
    for (size_t j = 0; j < kUnitKeys; j += lanes) {
      const VF x = hn::Sub(hn::Load(d, scores + j), max);
      const VF weight = hn::IfThenElse(hn::Eq(x, x), Exp2NonPositive(d, x), x);  // a NaN stays
      hn::Store(weight, d, scores + j);
      sum = hn::Add(sum, weight);
    }
    v.sum[r + i] = v.sum[r + i] * v.kept[i] + SumLanes(d, sum);
  }
}

bool AllFinite(const float* data, size_t size) {
  const DF d;
  VF sum = hn::Zero(d);  // of x 0: NaN if any x is no number or infinite
  ForVectors(size, [&](size_t i, size_t count) HWY_ATTR {
    sum = hn::MulAdd(LoadN(d, data + i, count), hn::Zero(d), sum);
  });
  return SumLanes(d, sum) == 0.0f;
}

// Rows [r, r + rows) and one unit of keys, of which they see [all.begin, all.end), packed from
// `keys` and `values` on. `first`: their sums begin here.
void AttendUnit(size_t width, size_t r, size_t rows, size_t unit, const float* keys,
                const float* values, bool first, Locals& v) {
  const size_t cols = TileCols(width), last = r + rows - 1;
  // What rows [i, j] see of the unit, counted from its first key.
  const auto seen = [&](size_t i, size_t j) {
    const KeyRange range = KeyRange{v.sees[i].begin, v.sees[j].end}.Within(unit, kUnitKeys);
    return range.empty() ? KeyRange{0, 0} : KeyRange{range.begin - unit, range.end - unit};
  };
  const auto tile = [&](size_t i) { return seen(r + i, std::min(r + i + kProductRows - 1, last)); };
  const KeyRange all = seen(r, last);
  SmallProduct(rows, all.end, LeftSide{v.q + r * width, width, 1}, keys, kUnitKeys, v.scores,
               kUnitKeys, nullptr, [&](size_t i, size_t j) {
                 return std::pair(size_t{0}, tile(i).Within(j, kProductCols).empty() ? 0 : width);
               });
  const KeyRange first_row = seen(r, r), last_row = seen(last, last);
  const bool ragged = first_row.begin != last_row.begin || first_row.end != last_row.end;
  if (ragged || all.begin > 0 || all.end < kUnitKeys) {
    for (size_t i = 0; i < rows; ++i) {
      const KeyRange own = seen(r + i, r + i);
      float* scores = v.scores + i * kUnitKeys;
      std::fill(scores, scores + own.begin, -std::numeric_limits<float>::infinity());
      std::fill(scores + own.end, scores + kUnitKeys, -std::numeric_limits<float>::infinity());
    }
  }
  TakeWeights(r, rows, v);
  const LeftSide weights{v.scores, kUnitKeys, 1};
  float* acc = v.acc + r * cols;
  const float* kept = first ? nullptr : v.kept;
  if (!ragged || AllFinite(values + all.begin * cols, (all.end - all.begin) * cols)) {
    return SmallProduct(rows, width, weights, values, cols, acc, cols, kept, [&](size_t i, size_t) {
      const KeyRange range = tile(i);
      return std::pair(range.begin, range.end);
    });
  }
  // 0 times a value that is no number would reach rows that don't see it.
  for (size_t i = 0; i < rows; ++i) {
    const KeyRange own = seen(r + i, r + i);
    SmallProduct(1, width, weights.From(i, 0), values, cols, acc + i * cols, cols,
                 first ? nullptr : v.kept + i,
                 [&](size_t, size_t) { return std::pair(own.begin, own.end); });
  }
}

// All rows of the block with the keys of one span: v.max, v.sum and v.acc, where a row sees any.
void AttendSpan(const AttentionArgs& a, const AttentionBlock& b, const AttentionTile& tile,
                size_t span, Locals& v) {
  const size_t width = a.q.cols / a.heads, cols = TileCols(width);
  const auto seen = [&](size_t r, size_t last) {
    return KeyRange{v.sees[r].begin, v.sees[last].end}.Within(span * kSpanKeys, kSpanKeys);
  };
  std::fill_n(v.max, b.rows, kLowestScore);
  std::fill_n(v.sum, b.rows, 0.0f);
  const KeyRange all = seen(0, b.rows - 1);
  const size_t begin = all.begin / kUnitKeys * kUnitKeys;
  for (size_t packed = begin; packed < all.end; packed += tile.keys) {
    const size_t end = std::min(packed + tile.keys, all.end);
    PackKeys(a, b, packed, end, v);
    for (size_t r = 0; r < b.rows; r += tile.rows) {
      const size_t rows = std::min(tile.rows, b.rows - r);
      const KeyRange own = seen(r, r + rows - 1);
      for (size_t unit = packed; unit < end; unit += kUnitKeys) {
        if (own.Within(unit, kUnitKeys).empty()) continue;
        AttendUnit(width, r, rows, unit, v.keys + (unit - packed) * width,
                   v.values + (unit - packed) * cols, own.begin >= unit, v);
      }
    }
  }
}

// Adds a span's sums to those of the spans before it, which are in max, sum and y.
void Merge(const Partial& span, size_t width, bool first, float* max, float* sum, float* y) {
  const DF d;
  const float top = first ? span.max : std::max(*max, span.max);
  const VF kept = first ? hn::Zero(d) : Exp2NonPositive(d, hn::Set(d, *max - top));
  const VF added = Exp2NonPositive(d, hn::Set(d, span.max - top));
  ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
    const VF old = first ? hn::Zero(d) : hn::Mul(kept, LoadN(d, y + i, count));
    StoreN(d, hn::MulAdd(added, LoadN(d, span.acc + i, count), old), y + i, count);
  });
  *sum = (first ? 0.0f : hn::GetLane(kept) * *sum) + hn::GetLane(added) * span.sum;
  *max = top;
}

// y / sum; 0 has the sign +.
void Finish(float sum, size_t width, float* y) {
  const DF d;
  ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
    const VF mean = hn::Div(LoadN(d, y + i, count), hn::Set(d, sum));
    StoreN(d, hn::Add(mean, hn::Zero(d)), y + i, count);
  });
}

void AttendBlock(const AttentionArgs& a, const AttentionTile& tile, size_t index) {
  Locals v;
  float max[kBlockRows], sum[kBlockRows];
  const AttentionBlock b = internal::BlockAt(a, index);
  const size_t width = a.q.cols / a.heads, cols = TileCols(width);
  PackQueries(a, b, v);
  const auto y = [&](size_t r) { return a.y.Row(b.QueryRow(a, r)) + b.Head(a, r) * width; };
  const size_t begin = v.sees[0].begin / kSpanKeys;
  for (size_t span = begin; span < internal::Spans(v.sees[b.rows - 1].end); ++span) {
    AttendSpan(a, b, tile, span, v);
    for (size_t r = 0; r < b.rows; ++r) {
      if (v.sees[r].Within(span * kSpanKeys, kSpanKeys).empty()) continue;
      Merge({v.max[r], v.sum[r], v.acc + r * cols}, width, span == v.sees[r].begin / kSpanKeys,
            max + r, sum + r, y(r));
    }
  }
  for (size_t r = 0; r < b.rows; ++r) Finish(sum[r], width, y(r));
}

// Row r's part of the scratch for `span` of `spans`: max, sum, acc.
float* SpanScratch(const AttentionArgs& a, const AttentionBlock& b, size_t r, size_t span,
                   size_t spans) {
  const size_t row = b.QueryRow(a, r) * a.heads + b.Head(a, r);
  return a.scratch.data + (row * spans + span) * (a.q.cols / a.heads + 2);
}

// One span of a block into the scratch.
void AttendBlockSpan(const AttentionArgs& a, const AttentionTile& tile, size_t index, size_t span,
                     size_t spans) {
  Locals v;
  const AttentionBlock b = internal::BlockAt(a, index);
  const size_t width = a.q.cols / a.heads, cols = TileCols(width);
  const KeyRange all{b.Sees(a, 0).begin, b.Sees(a, b.rows - 1).end};
  if (all.Within(span * kSpanKeys, kSpanKeys).empty()) return;
  PackQueries(a, b, v);
  AttendSpan(a, b, tile, span, v);
  for (size_t r = 0; r < b.rows; ++r) {
    if (v.sees[r].Within(span * kSpanKeys, kSpanKeys).empty()) continue;
    float* to = SpanScratch(a, b, r, span, spans);
    to[0] = v.max[r];
    to[1] = v.sum[r];
    std::copy_n(v.acc + r * cols, width, to + 2);
  }
}

void MergeBlock(const AttentionArgs& a, size_t index, size_t spans) {
  const AttentionBlock b = internal::BlockAt(a, index);
  const size_t width = a.q.cols / a.heads;
  for (size_t r = 0; r < b.rows; ++r) {
    const KeyRange sees = b.Sees(a, r);
    float* y = a.y.Row(b.QueryRow(a, r)) + b.Head(a, r) * width;
    float max = 0.0f, sum = 0.0f;
    const size_t begin = sees.begin / kSpanKeys;
    for (size_t span = begin; span < internal::Spans(sees.end); ++span) {
      const float* from = SpanScratch(a, b, r, span, spans);
      Merge({from[0], from[1], from + 2}, width, span == begin, &max, &sum, y);
    }
    Finish(sum, width, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(AttendBlock);
HWY_EXPORT(AttendBlockSpan);
HWY_EXPORT(MergeBlock);

size_t AttentionScratch(size_t queries, size_t keys, size_t heads, size_t width) {
  const size_t spans = internal::Spans(keys);
  return spans < 2 ? 0 : std::min(queries * heads, internal::kMaxSplitRows) * spans * (width + 2);
}

void Attention(core::Exec& exec, const AttentionArgs& args) noexcept {
  HOGNOSE_DCHECK(args.heads % args.key_heads == 0 && args.q.cols % args.heads == 0);
  const size_t width = args.q.cols / args.heads;
  HOGNOSE_DCHECK(width >= 1 && width <= kMaxAttentionWidth);
  HOGNOSE_DCHECK(args.k.cols == args.key_heads * width && args.v.cols == args.k.cols);
  HOGNOSE_DCHECK(args.v.rows == args.k.rows);
  HOGNOSE_DCHECK(args.y.rows == args.q.rows && args.y.cols == args.q.cols);
  HOGNOSE_DCHECK(args.query_offsets.size == args.key_offsets.size);
  HOGNOSE_DCHECK(args.window == 0 || args.causal);
  const core::CpuFacts& cpu = core::Cpu();
  const auto tile = internal::ChooseAttentionTile(cpu.l1d_bytes, cpu.l2_bytes, width);
  const size_t blocks = internal::Blocks(args), spans = internal::MostSpans(args);
  if (!internal::SplitsKeys(args.q.rows * args.heads, spans)) {
    return exec.pool.Run(
        blocks, [&](size_t task) { HWY_DYNAMIC_DISPATCH(AttendBlock)(args, tile, task); });
  }
  HOGNOSE_DCHECK(args.scratch.size >=
                 AttentionScratch(args.q.rows, spans * kSpanKeys, args.heads, width));
  exec.pool.Run(blocks * spans, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(AttendBlockSpan)(args, tile, task / spans, task % spans, spans);
  });
  exec.pool.Run(blocks,
                [&](size_t task) { HWY_DYNAMIC_DISPATCH(MergeBlock)(args, task, spans); });
}

void AttentionRef(const AttentionArgs& a) {
  const size_t width = a.q.cols / a.heads, group = a.heads / a.key_heads;
  const double scale = a.scale != 0.0f ? a.scale : 1.0 / std::sqrt(static_cast<double>(width));
  const size_t sequences = a.query_offsets.size == 0 ? 1 : a.query_offsets.size - 1;
  for (size_t b = 0; b < sequences; ++b) {
    const bool packed = a.query_offsets.size != 0;
    const size_t query = packed ? a.query_offsets[b] : 0, key = packed ? a.key_offsets[b] : 0;
    const size_t queries = packed ? a.query_offsets[b + 1] - query : a.q.rows;
    const size_t keys = packed ? a.key_offsets[b + 1] - key : a.k.rows;
    std::vector<double> weights(keys);
    for (size_t i = 0; i < queries * a.heads && keys > 0; ++i) {
      const size_t row = query + i / a.heads, head = i % a.heads;
      const float* q = a.q.Row(row) + head * width;
      double max = -std::numeric_limits<double>::infinity(), sum = 0.0;
      for (size_t j = 0; j < keys; ++j) {
        const float* k = a.k.Row(key + j) + head / group * width;
        const size_t t = i / a.heads + keys - queries;  // the query's own key
        const bool seen = !a.causal || (j <= t && (a.window == 0 || j + a.window > t));
        double score = seen ? 0.0 : -std::numeric_limits<double>::infinity();
        for (size_t p = 0; p < width && seen; ++p) score += static_cast<double>(q[p]) * k[p];
        weights[j] = seen ? scale * score : score;
        max = std::max(max, weights[j]);
      }
      for (double& w : weights) sum += w = std::exp(w - max);
      for (size_t p = 0; p < width; ++p) {
        double y = 0.0;
        for (size_t j = 0; j < keys; ++j) {
          // A weight of 0 may meet an infinite value that nobody sees.
          if (weights[j] != 0.0) y += weights[j] * a.v.Row(key + j)[head / group * width + p];
        }
        a.y.Row(row)[head * width + p] = static_cast<float>(y / sum);
      }
    }
  }
}

}  // namespace hognose::kernels
#endif
