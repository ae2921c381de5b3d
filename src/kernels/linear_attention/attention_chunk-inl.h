// What linear_attention's forward and backward pass share on every target: features, a head's rows
// and decays of a chunk. Included once per target, inside HWY_BEFORE_NAMESPACE.

#if defined(HOGNOSE_KERNELS_ATTENTION_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_ATTENTION_CHUNK_INL_H_
#undef HOGNOSE_KERNELS_ATTENTION_CHUNK_INL_H_
#else
#define HOGNOSE_KERNELS_ATTENTION_CHUNK_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/linear_attention/attention_plan.h"
#include "kernels/state_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// One head of a call.
template <typename Args>
struct AttentionHead : internal::AttentionShape<Args> {
  const Args& a;
  const internal::AttentionPlan& plan;
  size_t h;
  float scale;
  bool decays;

  AttentionHead(const Args& args, const internal::AttentionPlan& the_plan, size_t head)
      : internal::AttentionShape<Args>(args),
        a(args),
        plan(the_plan),
        h(head),
        scale(internal::AttentionScale(args)),
        decays(args.log_decay.rows != 0) {}

  // Row of the caller's states.
  size_t StateRow(size_t sequence) const { return (sequence * a.heads + h) * this->states; }
  float* State(size_t span) const { return plan.states.Row(span * a.heads + h); }
  float* StateGradient(size_t span) const { return plan.dstates.Row(span * a.heads + h); }
};

// f(x). A NaN stays.
HWY_INLINE VF Feature(DF d, FeatureMap map, VF x) {
  const VF zero = hn::Zero(d);
  if (map == FeatureMap::kRelu) return hn::IfThenZeroElse(hn::Lt(x, zero), x);
  if (map == FeatureMap::kEluPlusOne) {
    return hn::IfThenElse(hn::Gt(x, zero), hn::Add(x, hn::Set(d, 1.0f)), Exp(d, x));
  }
  return x;
}

// f'(x) of f = f(x).
HWY_INLINE VF FeatureSlope(DF d, FeatureMap map, VF f) {
  const VF one = hn::Set(d, 1.0f);
  if (map == FeatureMap::kRelu) return hn::IfThenElseZero(hn::Gt(f, hn::Zero(d)), one);
  if (map == FeatureMap::kEluPlusOne) return hn::Min(f, one);
  return one;
}

// to[t] = scale f(from[begin + t]) of columns [column, column + width), rows of n floats filled up
// with zeros.
HWY_INLINE void LoadFeatures(FeatureMap map, const core::Mat<const float>& from, size_t begin,
                             size_t steps, size_t column, size_t width, size_t n, float scale,
                             float* to) {
  const DF d;
  const VF factor = hn::Set(d, scale);
  for (size_t t = 0; t < steps; ++t) {
    const float* x = from.Row(begin + t) + column;
    float* row = to + t * n;
    ForVectors(width, [&](size_t i, size_t count) HWY_ATTR {
      StoreN(d, hn::Mul(factor, Feature(d, map, LoadN(d, x + i, count))), row + i, count);
    });
    std::fill(row + width, row + n, 0.0f);
  }
}

// A chunk of a span, with its head's decays; all are 1 without log_decay.
struct AttentionChunk : ChunkSums {
  size_t begin;  // row
  HWY_ALIGN float since[kChunk], until[kChunk];

  template <typename Args>
  AttentionChunk(const AttentionHead<Args>& head, const internal::AttentionSpan& span,
                 size_t index) {
    begin = span.begin + index * kChunk;
    steps = std::min(kChunk, span.steps - index * kChunk);
    if (!head.decays) {
      std::fill_n(since, kChunk, 1.0f);
      std::fill_n(until, kChunk, 1.0f);
      return;
    }
    double s = 0.0;
    float high = 0.0f, low = 0.0f;
    for (size_t t = 0; t < steps; ++t) {
      s += head.a.log_decay.Row(begin + t)[head.h];
      high = static_cast<float>(s), low = static_cast<float>(s - high);
      sum[t] = high, sum_lo[t] = low;
    }
    FillBehind(high, low);
    FillDecays(*this, since, until);
  }

  // What the chunk leaves of its first state.
  float kept() const { return since[kChunk - 1]; }
};

// rows[t] *= weights[t], rows of p floats.
HWY_INLINE void ScaleRowsBy(const float* weights, size_t steps, size_t p, float* rows) {
  const DF d;
  for (size_t t = 0; t < steps; ++t) {
    const VF weight = hn::Set(d, weights[t]);
    for (size_t i = 0; i < p; i += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(weight, hn::LoadU(d, rows + t * p + i)), d, rows + t * p + i);
    }
  }
}

// sum[i] = factor sum[i] + from[i]: a state after a span from those before and inside it. They
// change places: `from` becomes what sum was.
HWY_INLINE void CarryState(float factor, size_t size, float* sum, float* from) {
  const DF d;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const VF before = hn::LoadU(d, sum + i);
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), before, hn::LoadU(d, from + i)), d, sum + i);
    hn::StoreU(before, d, from + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
