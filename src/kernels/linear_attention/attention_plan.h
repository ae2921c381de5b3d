// How linear_attention cuts its work: sequences into spans of some chunks, which may run at once,
// and the scratch for their states. What the forward and the backward pass share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/arena.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/state_chunks.h"

namespace hognose::kernels::internal {

// States of a span's chunks that a task of the gradient keeps near the processor.
inline constexpr size_t kSpanFloats = size_t{1} << 17;

// Chunks of a span: as many as keep their states within kSpanFloats, 2 to 16.
constexpr size_t SpanChunks(size_t states, size_t width) {
  return std::clamp<size_t>(kSpanFloats / (TileColumns(states) * (width + 1)), 2, 16);
}

struct AttentionSpan {
  uint32_t sequence;
  uint32_t begin;  // row
  uint32_t steps;
  bool first, last;  // of its sequence

  bool alone() const { return first && last; }
};

// Sizes of a call, for either direction.
template <typename Args>
struct AttentionShape {
  size_t sequences, states, width;
  size_t columns;  // of a state: one more when normalised

  explicit AttentionShape(const Args& a)
      : sequences(a.starts.size == 0 ? 1 : a.starts.size - 1),
        states(a.q.cols / a.heads),
        width(a.v.cols / a.heads),
        columns(width + (a.normalised ? 1 : 0)) {}
};

template <typename Args>
float AttentionScale(const Args& a) {
  return a.scale != 0.0f ? a.scale : 1.0f / std::sqrt(static_cast<float>(a.q.cols / a.heads));
}

template <typename Args>
void CheckOperands(const Args& a, const AttentionShape<Args>& shape) {
  HOGNOSE_DCHECK(a.q.cols % a.heads == 0 && a.v.cols % a.heads == 0);
  HOGNOSE_DCHECK(a.k.rows == a.q.rows && a.v.rows == a.q.rows && a.k.cols == a.q.cols);
  HOGNOSE_DCHECK(shape.states <= kMaxLinearAttentionWidth &&
                 shape.width <= kMaxLinearAttentionWidth);
  HOGNOSE_DCHECK(a.starts.size == 0 ||
                 (a.starts.size > 1 && a.starts[a.starts.size - 1] <= a.q.rows));
  HOGNOSE_DCHECK(a.log_decay.rows == 0 || (a.causal && a.log_decay.cols == a.heads));
  HOGNOSE_DCHECK(a.initial_state.rows == 0 ||
                 (a.initial_state.rows == shape.sequences * a.heads * shape.states &&
                  a.initial_state.cols == shape.columns));
}

struct AttentionPlan {
  core::Vec<AttentionSpan> spans;    // of all sequences, in order
  core::Vec<uint32_t> first_span;    // [B + 1]
  core::Mat<float> states, dstates;  // row span H + h: a span's first state, gradient of its last
  core::Mat<float> decays;           // [spans, H]: what a span leaves of its first state
  bool in_spans = false;

  // `state_floats` of a state as the direction lays it out. A span has a state of its own where
  // spans run at once, and `backward` where a sequence has several; and a gradient where they run
  // at once and `backward`.
  template <typename Args>
  static AttentionPlan Carve(core::Arena& arena, const Args& a, size_t state_floats,
                             bool backward) {
    const AttentionShape shape(a);
    const size_t span = SpanChunks(shape.states, shape.width) * kChunk;
    AttentionPlan plan;
    size_t count = 0;
    for (size_t b = 0; b < shape.sequences; ++b) count += Spans(a, b, span);
    plan.in_spans = !a.causal || LinearAttentionInSpans(shape.sequences, a.heads, count);
    plan.spans = arena.NewVec<AttentionSpan>(count);
    plan.first_span = arena.NewVec<uint32_t>(shape.sequences + 1);
    const bool kept = plan.in_spans || (backward && count > shape.sequences);
    plan.states = arena.NewMat<float>(kept ? count * a.heads : 0, state_floats);
    plan.dstates =
        arena.NewMat<float>(backward && plan.in_spans ? count * a.heads : 0, state_floats);
    plan.decays = arena.NewMat<float>(plan.in_spans ? count : 0, a.heads);
    return plan;
  }

  template <typename Args>
  void FillSpans(const Args& a) const {
    const AttentionShape shape(a);
    const size_t span = SpanChunks(shape.states, shape.width) * kChunk;
    size_t next = 0;
    for (size_t b = 0; b < shape.sequences; ++b) {
      first_span[b] = static_cast<uint32_t>(next);
      const size_t count = Spans(a, b, span), begin = Begin(a, b), end = Begin(a, b + 1);
      for (size_t i = 0; i < count; ++i) {
        const size_t from = begin + i * span;
        spans[next++] = {.sequence = static_cast<uint32_t>(b),
                         .begin = static_cast<uint32_t>(from),
                         .steps = static_cast<uint32_t>(std::min(span, end - from)),
                         .first = i == 0,
                         .last = i + 1 == count};
      }
    }
    first_span[shape.sequences] = static_cast<uint32_t>(next);
  }

  // The passes of a direction, each called with an index and a head: `sequence` where sequences are
  // all that runs at once, else `sum` and, when `carry` has handed the states on, `span` for spans.
  template <typename Args>
  struct Passes {
    using Pass = void (*)(const Args&, const AttentionPlan&, size_t index, size_t head);
    Pass sequence, sum, carry, span;
  };
  template <typename Args>
  void Run(core::Exec& exec, const Args& a, const Passes<Args>& passes) const {
    const auto run = [&](size_t count, auto pass) {
      exec.pool.Run(count * a.heads,
                    [&](size_t task) { pass(a, *this, task / a.heads, task % a.heads); });
    };
    const size_t sequences = first_span.size - 1;
    if (!in_spans) return run(sequences, passes.sequence);
    run(spans.size, passes.sum);
    run(sequences, passes.carry);
    run(spans.size, passes.span);
  }

  // The whole of a sequence.
  AttentionSpan Sequence(size_t b) const {
    AttentionSpan all = spans[first_span[b]];
    for (size_t i = first_span[b] + 1; i < first_span[b + 1]; ++i) all.steps += spans[i].steps;
    all.last = true;
    return all;
  }

 private:
  template <typename Args>
  static size_t Begin(const Args& a, size_t b) {
    return a.starts.size == 0 ? b * a.q.rows : a.starts[b];
  }
  // An empty sequence has a span too, which passes its state on.
  template <typename Args>
  static size_t Spans(const Args& a, size_t b, size_t span) {
    return std::max<size_t>(1, (Begin(a, b + 1) - Begin(a, b) + span - 1) / span);
  }
};

}  // namespace hognose::kernels::internal
