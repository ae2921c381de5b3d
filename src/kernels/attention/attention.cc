#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/cpu.h"
#include "kernels/attention/attention_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/attention/attention_pack-inl.h"
#include "kernels/product_tile-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_ATTENTION_ONCE_
#define HOGNOSE_ATTENTION_ONCE_
// Below every finite score: no maximum yet. Finite, so that a score of -infinity less it is
// -infinity.
constexpr float kLowestScore = std::numeric_limits<float>::lowest();

// What a span leaves of a row: y is acc / sum if there is no other.
struct Partial {
  float max;         // of the scores, in units of log2
  float sum;         // of 2^(score - max)
  const float* acc;  // [P]: of 2^(score - max) v
};
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// Scores of rows [r, r + rows) to weights 2^(score - maximum); their maxima and sums move on.
void TakeWeights(size_t r, size_t rows, AttentionLocals& v) {
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

bool AllFinite(size_t width, const KeyRange& rows, const float* values, size_t stride) {
  const DF d;
  VF sum = hn::Zero(d);  // of x 0: NaN if any x is no number or infinite
  for (size_t t = rows.begin; t < rows.end; ++t) {
    ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
      sum = hn::MulAdd(LoadN(d, values + t * stride + i, count), hn::Zero(d), sum);
    });
  }
  return SumLanes(d, sum) == 0.0f;
}

// Rows [r, r + rows) and one unit of keys, of which they see [all.begin, all.end), packed from
// `keys` and `values` on. `first`: their sums begin here.
void AttendUnit(size_t width, size_t r, size_t rows, size_t unit, const float* keys,
                const float* values, size_t stride, bool first, AttentionLocals& v) {
  const size_t cols = TileCols(width), last = r + rows - 1;
  // What rows [i, j] see of the unit, counted from its first key.
  const auto seen = [&](size_t i, size_t j) {
    const KeyRange range = KeyRange{v.sees[i].begin, v.sees[j].end}.Within(unit, kUnitKeys);
    return range.empty() ? KeyRange{0, 0} : KeyRange{range.begin - unit, range.end - unit};
  };
  const auto tile = [&](size_t i) { return seen(r + i, std::min(r + i + kProductRows - 1, last)); };
  const KeyRange all = seen(r, last);
  SmallProduct(rows, all.end, LeftSide{v.q + r * width, width, 1}, keys, kKeyStride, v.scores,
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
  if (!ragged || AllFinite(width, all, values, stride)) {
    return SmallProduct(rows, width, weights, values, stride, acc, cols, kept,
                        [&](size_t i, size_t) {
                          const KeyRange range = tile(i);
                          return std::pair(range.begin, range.end);
                        });
  }
  // 0 times a value that is no number would reach rows that don't see it.
  for (size_t i = 0; i < rows; ++i) {
    const KeyRange own = seen(r + i, r + i);
    SmallProduct(1, width, weights.From(i, 0), values, stride, acc + i * cols, cols,
                 first ? nullptr : v.kept + i,
                 [&](size_t, size_t) { return std::pair(own.begin, own.end); });
  }
}

// All rows of key head g of the block with the packed keys [begin, end), which are of one span.
void AttendTile(const AttentionArgs& a, const AttentionBlock& b, const AttentionTile& tile,
                size_t g, size_t begin, size_t end, AttentionLocals& v) {
  const size_t width = a.q.cols / a.heads, span = begin / kSpanKeys * kSpanKeys;
  const bool in_place = InPlace(a, b);
  const size_t stride = in_place ? a.v.stride : TileCols(width);
  const float* values =
      in_place ? a.v.Row(b.key_begin + begin) + (b.key_head + g) * width : v.values;
  for (size_t i = 0; i < b.rows; i += tile.rows) {
    const size_t r = g * b.rows + i, rows = std::min(tile.rows, b.rows - i);
    const KeyRange own =
        KeyRange{v.sees[r].begin, v.sees[r + rows - 1].end}.Within(span, kSpanKeys);
    for (size_t unit = begin; unit < end; unit += kUnitKeys) {
      if (own.Within(unit, kUnitKeys).empty()) continue;
      AttendUnit(width, r, rows, unit, v.keys + (unit - begin) / kUnitKeys * kKeyStride * width,
                 values + (unit - begin) * stride, stride, own.begin >= unit, v);
    }
  }
}

// All rows of the block with the keys of one span: v.max, v.sum and v.acc, where a row sees any.
void AttendSpan(const AttentionArgs& a, const AttentionBlock& b, const AttentionTile& tile,
                size_t span, AttentionLocals& v) {
  std::fill_n(v.max, b.key_heads * b.rows, kLowestScore);
  std::fill_n(v.sum, b.key_heads * b.rows, 0.0f);
  const KeyRange all =
      KeyRange{v.sees[0].begin, v.sees[b.rows - 1].end}.Within(span * kSpanKeys, kSpanKeys);
  const size_t step = b.key_heads > 1 ? kUnitKeys : tile.keys;
  for (size_t t = all.begin / kUnitKeys * kUnitKeys; t < all.end; t += step) {
    const size_t end = std::min(t + step, all.end);
    KeysAhead ahead(a, b, t + kUnitKeys);
    for (size_t g = 0; g < b.key_heads; ++g) {
      PackKeys(a, b, g, t, end, ahead, v);
      AttendTile(a, b, tile, g, t, end, v);
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

void AttendBlock(const AttentionArgs& a, const AttentionTile& tile, const AttentionBlock& b) {
  AttentionLocals v;
  float max[kMaxBlockRows], sum[kMaxBlockRows];
  const size_t width = a.q.cols / a.heads, cols = TileCols(width);
  PackQueries(a, b, v);
  const auto y = [&](size_t r) { return a.y.Row(b.QueryRow(a, r)) + b.Head(a, 0, r) * width; };
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

// The scratch of one row of q, one head, one span: max, sum, acc.
float* SpanScratch(const AttentionArgs& a, const AttentionCut& cut, size_t row, size_t head,
                   size_t span) {
  return a.scratch.data + ((row * a.heads + head) * cut.spans + span) * (a.q.cols / a.heads + 2);
}

// One span of a block into the scratch.
void AttendBlockSpan(const AttentionArgs& a, const AttentionTile& tile, const AttentionCut& cut,
                     const AttentionBlock& b, size_t span) {
  AttentionLocals v;
  const size_t width = a.q.cols / a.heads, cols = TileCols(width);
  const KeyRange all{b.Sees(a, 0).begin, b.Sees(a, b.rows - 1).end};
  if (all.Within(span * kSpanKeys, kSpanKeys).empty()) return;
  PackQueries(a, b, v);
  AttendSpan(a, b, tile, span, v);
  for (size_t i = 0; i < b.key_heads * b.rows; ++i) {
    const size_t g = i / b.rows, r = i % b.rows;
    if (v.sees[r].Within(span * kSpanKeys, kSpanKeys).empty()) continue;
    float* to = SpanScratch(a, cut, b.QueryRow(a, r), b.Head(a, g, r), span);
    to[0] = v.max[i];
    to[1] = v.sum[i];
    std::copy_n(v.acc + i * cols, width, to + 2);
  }
}

void MergeSpans(const AttentionArgs& a, const AttentionCut& cut, const AttentionBlock& b) {
  const size_t width = a.q.cols / a.heads;
  for (size_t i = 0; i < b.key_heads * b.rows; ++i) {
    const size_t row = b.QueryRow(a, i % b.rows), head = b.Head(a, i / b.rows, i % b.rows);
    const KeyRange sees = b.Sees(a, i % b.rows);
    float* y = a.y.Row(row) + head * width;
    float max = 0.0f, sum = 0.0f;
    const size_t begin = sees.begin / kSpanKeys;
    for (size_t span = begin; span < internal::Spans(sees.end); ++span) {
      const float* from = SpanScratch(a, cut, row, head, span);
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
HWY_EXPORT(MergeSpans);

size_t AttentionScratch(size_t queries, size_t keys, size_t heads, size_t width) {
  const size_t spans = internal::Spans(keys);
  return spans < 2 ? 0 : std::min(queries * heads, internal::kMaxSplitRows) * spans * (width + 2);
}

namespace internal {

void AttentionByTiles(core::Exec& exec, const AttentionArgs& args,
                      const AttentionTile& tile) noexcept {
  HOGNOSE_DCHECK(args.heads % args.key_heads == 0 && args.q.cols % args.heads == 0);
  const size_t width = args.q.cols / args.heads;
  HOGNOSE_DCHECK(width >= 1 && width <= kMaxAttentionWidth);
  HOGNOSE_DCHECK(args.k.cols == args.key_heads * width && args.v.cols == args.k.cols);
  HOGNOSE_DCHECK(args.v.rows == args.k.rows);
  HOGNOSE_DCHECK(args.y.rows == args.q.rows && args.y.cols == args.q.cols);
  HOGNOSE_DCHECK(args.query_offsets.size == args.key_offsets.size);
  HOGNOSE_DCHECK(args.window == 0 || args.causal);
  const AttentionCut cut(args);
  if (cut.spans <= 1) {
    return exec.pool.Run(cut.blocks, [&](size_t task) {
      HWY_DYNAMIC_DISPATCH(AttendBlock)(args, tile, cut.BlockAt(args, task));
    });
  }
  HOGNOSE_DCHECK(args.scratch.size >=
                 AttentionScratch(args.q.rows, cut.spans * kSpanKeys, args.heads, width));
  exec.pool.Run(cut.blocks * cut.spans, [&](size_t task) {
    const AttentionBlock block = cut.BlockAt(args, task / cut.spans);
    HWY_DYNAMIC_DISPATCH(AttendBlockSpan)(args, tile, cut, block, task % cut.spans);
  });
  exec.pool.Run(cut.blocks, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(MergeSpans)(args, cut, cut.BlockAt(args, task));
  });
}

}  // namespace internal

void Attention(core::Exec& exec, const AttentionArgs& args) noexcept {
  const core::CpuFacts& cpu = core::Cpu();
  const size_t width = args.q.cols / args.heads;
  internal::AttentionByTiles(exec, args,
                             internal::ChooseAttentionTile(cpu.l1d_bytes, cpu.l2_bytes, width));
}

}  // namespace hognose::kernels
#endif
