// The gradient of linear_attention, by spans of chunks: states at the chunks' beginnings are
// computed again, then the chunks pass from last to first with the gradient of the state that
// leaves them.
#include <algorithm>

#include "kernels/linear_attention/attention_plan.h"
#include "kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/linear_attention_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/linear_attention/attention_grad_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// A span from the state at its beginning, v.states[0], or 0 if not `has_state`, and v.dst, which
// moves on to the span's beginning if somebody `wants_gradient` there.
void GradSpan(const Head& head, const AttentionSpan& span, bool has_state, bool wants_gradient,
              Locals& v) {
  const size_t chunks = internal::Chunks(span.steps), size = head.columns * v.n;
  for (size_t c = 0; c + 1 < chunks; ++c) {
    const AttentionChunk chunk(head, span, c);
    float* state = v.states + (c + 1) * size;
    const bool live = has_state || c > 0;
    LoadKeys(head, chunk, v);
    if (live) std::copy_n(state - size, size, state);
    Advance(head, chunk, live, state, v);
  }
  for (size_t c = chunks; c-- > 0;) {
    const AttentionChunk chunk(head, span, c);
    GradChunk(head, chunk, has_state || c > 0 ? v.states + c * size : nullptr, v);
    if (wants_gradient || c > 0) Retreat(head, chunk, v);
  }
}

// All spans of a sequence, last to first, after their first states.
void GradSequence(const LinearAttentionGradArgs& a, const internal::AttentionPlan& plan,
                  size_t sequence, size_t h) {
  const Head head(a, plan, h);
  Locals v;
  SetSizes(head, v);
  const size_t size = head.columns * v.n;
  const size_t first = plan.first_span[sequence], end = plan.first_span[sequence + 1];
  LoadState(head, a.initial_state, sequence, v.n, v.states);
  for (size_t i = first; i + 1 < end; ++i) {
    std::copy_n(v.states, size, head.State(i));
    for (size_t c = 0; c < internal::Chunks(plan.spans[i].steps); ++c) {
      const AttentionChunk chunk(head, plan.spans[i], c);
      LoadKeys(head, chunk, v);
      Advance(head, chunk, /*live=*/true, v.states, v);
    }
  }
  v.live = a.dstate.rows != 0;
  if (v.live) LoadState(head, a.dstate, sequence, v.n, v.dst);
  for (size_t i = end; i-- > first;) {
    if (i + 1 < end) std::copy_n(head.State(i), size, v.states);
    GradSpan(head, plan.spans[i], i > first || a.initial_state.rows != 0,
             i > first || a.dstate.rows != 0, v);
  }
  StoreGradient(head, sequence, v);
}

// What a span adds to a state and to a state's gradient, and what it leaves of either.
void SumGradSpan(const LinearAttentionGradArgs& a, const internal::AttentionPlan& plan,
                 size_t index, size_t h) {
  const Head head(a, plan, h);
  const AttentionSpan& span = plan.spans[index];
  Locals v;
  SetSizes(head, v);
  const size_t chunks = internal::Chunks(span.steps), size = head.columns * v.n;
  float kept = 1.0f;
  float* state = head.State(index);
  std::fill_n(state, size, 0.0f);
  std::fill_n(v.dst, size, 0.0f);
  for (size_t c = 0; c < chunks; ++c) {
    const AttentionChunk chunk(head, span, c);
    kept *= chunk.kept();
    if (a.causal && span.last) continue;
    LoadKeys(head, chunk, v);
    Advance(head, chunk, c > 0, state, v);
  }
  for (size_t c = chunks; c-- > 0 && !(a.causal && span.first);) {
    const AttentionChunk chunk(head, span, c);
    LoadQueries(head, chunk, v);
    Retreat(head, chunk, v);
  }
  std::copy_n(v.dst, size, head.StateGradient(index));
  plan.decays.Row(index)[h] = kept;
}

// From what spans add to their first states and the gradients of their last; not causal: to the
// last state and the gradient of the first, in the place of the first span's.
void CarryGradSequence(const LinearAttentionGradArgs& a, const internal::AttentionPlan& plan,
                       size_t sequence, size_t h) {
  const Head head(a, plan, h);
  Locals v;
  SetSizes(head, v);
  const size_t size = head.columns * v.n;
  const size_t first = plan.first_span[sequence], end = plan.first_span[sequence + 1];
  LoadState(head, a.initial_state, sequence, v.n, v.states);
  LoadState(head, a.dstate, sequence, v.n, v.dst);
  v.live = true;
  for (size_t i = first; i < end; ++i) {
    CarryState(plan.decays.Row(i)[h], size, v.states, head.State(i));
  }
  for (size_t i = end; i-- > first;) {
    CarryState(plan.decays.Row(i)[h], size, v.dst, head.StateGradient(i));
  }
  if (a.causal) return;
  std::copy_n(v.states, size, head.State(first));
  std::copy_n(v.dst, size, head.StateGradient(first));
  StoreGradient(head, sequence, v);
}

// Every step of a span that is not causal: dv = k dS, df(k) = v dS^T, df(q) = d_o S^T.
void GradSpanOfAll(const Head& head, const AttentionSpan& span, Locals& v) {
  TransposeInto(v.dst, v.n, head.columns, head.states, v.ds, v.p);
  for (size_t c = 0; c < internal::Chunks(span.steps); ++c) {
    const AttentionChunk chunk(head, span, c);
    LoadKeys(head, chunk, v);
    LoadQueries(head, chunk, v);
    SmallProduct(chunk.steps, head.width, LeftSide{v.k, v.n, 1}, v.ds, v.p, v.out, v.p, nullptr,
                 All(head.states));
    StoreValueGradient(head, chunk, v);
    SmallProduct(chunk.steps, head.states, LeftSide{v.v, v.p, 1}, v.dst, v.n, v.out, v.n, nullptr,
                 All(head.columns));
    StoreFeatureGradient(head, chunk, v.out, v.k, v.n, head.a.dk);
    SmallProduct(chunk.steps, head.states, LeftSide{v.d_o, v.p, 1}, v.states, v.n, v.out, v.n,
                 nullptr, All(head.columns));
    StoreFeatureGradient(head, chunk, v.out, v.q, v.n, head.a.dq);
  }
}

void GradOneSpan(const LinearAttentionGradArgs& a, const internal::AttentionPlan& plan,
                 size_t index, size_t h) {
  const Head head(a, plan, h);
  const AttentionSpan& span = plan.spans[index];
  Locals v;
  SetSizes(head, v);
  const size_t size = head.columns * v.n;
  const size_t from = a.causal ? index : plan.first_span[span.sequence];
  std::copy_n(head.State(from), size, v.states);
  std::copy_n(head.StateGradient(from), size, v.dst);
  v.live = true;
  if (!a.causal) return GradSpanOfAll(head, span, v);
  const bool wants_gradient = span.first && a.dstate.rows != 0;
  GradSpan(head, span, /*has_state=*/true, wants_gradient, v);
  if (wants_gradient) StoreGradient(head, span.sequence, v);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(GradSequence);
HWY_EXPORT(SumGradSpan);
HWY_EXPORT(CarryGradSequence);
HWY_EXPORT(GradOneSpan);

namespace {

internal::AttentionPlan PlanGrad(core::Arena& arena, const LinearAttentionGradArgs& args) {
  const internal::AttentionShape shape(args);
  return internal::AttentionPlan::Carve(
      arena, args, shape.columns * internal::TileColumns(shape.states), /*backward=*/true);
}

}  // namespace

size_t LinearAttentionGradScratch(const LinearAttentionGradArgs& args) {
  core::Arena measure;
  PlanGrad(measure, args);
  return measure.used() / sizeof(float);
}

void LinearAttentionGrad(core::Exec& exec, const LinearAttentionGradArgs& args) noexcept {
  const internal::AttentionShape shape(args);
  internal::CheckOperands(args, shape);
  HOGNOSE_DCHECK(args.d_o.rows == args.q.rows && args.d_o.cols == args.v.cols);
  HOGNOSE_DCHECK(!args.normalised ||
                 (args.o.rows == args.q.rows && args.normaliser.rows == args.q.rows));
  HOGNOSE_DCHECK(args.dlog_decay.rows == args.log_decay.rows);
  core::Arena arena = core::Arena::Over(args.scratch);
  const internal::AttentionPlan plan = PlanGrad(arena, args);
  plan.FillSpans(args);
  plan.Run(exec, args,
           internal::AttentionPlan::Passes<LinearAttentionGradArgs>{
               .sequence = &HWY_DYNAMIC_DISPATCH(GradSequence),
               .sum = &HWY_DYNAMIC_DISPATCH(SumGradSpan),
               .carry = &HWY_DYNAMIC_DISPATCH(CarryGradSequence),
               .span = &HWY_DYNAMIC_DISPATCH(GradOneSpan)});
}

}  // namespace hognose::kernels
#endif
