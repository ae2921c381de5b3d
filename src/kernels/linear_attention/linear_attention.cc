#include "kernels/linear_attention/linear_attention.h"

#include <algorithm>

#include "kernels/linear_attention/attention_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/linear_attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/linear_attention/attention_chunk-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_LINEAR_ATTENTION_ONCE_
#define HOGNOSE_LINEAR_ATTENTION_ONCE_
// Here a state is [N, p] and then z [n], the normaliser's column: n and p are N and P rounded up.
constexpr size_t StateFloats(size_t states, size_t width) {
  return states * internal::TileColumns(width) + internal::TileColumns(states);
}
constexpr size_t kMaxStateFloats = StateFloats(kMaxLinearAttentionWidth, kMaxLinearAttentionWidth);
constexpr float kNormaliserFloor = 1e-10f;
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// A head's matrices of the chunk at hand, near the processor, and the state.
struct Locals {
  static constexpr size_t kRows = kChunk * internal::TileColumns(kMaxLinearAttentionWidth);
  size_t n, p;
  bool live = false;                        // false: the state is 0, whatever it holds
  HWY_ALIGN float q[kRows], k[kRows];       // [Q, n]
  HWY_ALIGN float v[kRows], o[kRows];       // [Q, p]
  HWY_ALIGN float kt[kRows];                // [N, Q]
  HWY_ALIGN float scores[kChunk * kChunk];  // [Q, Q]
  HWY_ALIGN float decays[kChunk * kChunk];
  HWY_ALIGN float state[kMaxStateFloats];
  float kept[kMaxLinearAttentionWidth];
};

using Head = AttentionHead<LinearAttentionArgs>;
using internal::AttentionSpan;

float* Normalisers(const Head& head, Locals& v) { return v.state + head.states * v.p; }

void SetSizes(const Head& head, Locals& v) {
  v.n = internal::TileColumns(head.states);
  v.p = internal::TileColumns(head.width);
}

// The caller's initial state of a sequence.
void LoadInitial(const Head& head, size_t sequence, Locals& v) {
  v.live = head.a.initial_state.rows != 0;
  if (!v.live) return;
  float* z = Normalisers(head, v);
  std::fill(z + head.states, z + v.n, 0.0f);
  CopyRows(head.a.initial_state, head.StateRow(sequence), head.states, 0, head.width, v.p, v.state);
  for (size_t i = 0; i < head.states && head.a.normalised; ++i) {
    z[i] = head.a.initial_state.Row(head.StateRow(sequence) + i)[head.width];
  }
}

void StoreFinal(const Head& head, size_t sequence, Locals& v) {
  if (head.a.final_state.rows == 0) return;
  if (!v.live) std::fill_n(v.state, StateFloats(head.states, head.width), 0.0f);
  for (size_t i = 0; i < head.states; ++i) {
    float* row = head.a.final_state.Row(head.StateRow(sequence) + i);
    std::copy_n(v.state + i * v.p, head.width, row);
    if (head.a.normalised) row[head.width] = Normalisers(head, v)[i];
  }
}

void LoadKeys(const Head& head, const AttentionChunk& chunk, Locals& v) {
  LoadFeatures(head.a.feature_map, head.a.k, chunk.begin, chunk.steps, head.h * head.states,
               head.states, v.n, 1.0f, v.k);
  CopyRows(head.a.v, chunk.begin, chunk.steps, head.h * head.width, head.width, v.p, v.v);
}

void LoadQueries(const Head& head, const AttentionChunk& chunk, Locals& v) {
  LoadFeatures(head.a.feature_map, head.a.q, chunk.begin, chunk.steps, head.h * head.states,
               head.states, v.n, head.scale, v.q);
}

// S = kept S + k^T (until v), z = kept z + k^T until; v.v is not v afterwards.
void Advance(const Head& head, const AttentionChunk& chunk, Locals& v) {
  const DF d;
  if (head.decays) ScaleRowsBy(chunk.until, chunk.steps, v.p, v.v);
  std::fill_n(v.kept, head.states, chunk.kept());
  SmallProduct(head.states, head.width, LeftSide{v.k, 1, v.n}, v.v, v.p, v.state, v.p,
               v.live ? v.kept : nullptr, All(chunk.steps));
  float* z = Normalisers(head, v);
  for (size_t i = 0; i < v.n && head.a.normalised; i += hn::Lanes(d)) {
    VF sum = hn::Zero(d);
    for (size_t t = 0; t < chunk.steps; ++t) {
      sum = hn::MulAdd(hn::Set(d, chunk.until[t]), hn::LoadU(d, v.k + t * v.n + i), sum);
    }
    if (v.live) sum = hn::MulAdd(hn::Set(d, chunk.kept()), hn::LoadU(d, z + i), sum);
    hn::StoreU(sum, d, z + i);
  }
  v.live = true;
}

// scores = q k^T decays, 0 above the diagonal.
void Scores(const Head& head, const AttentionChunk& chunk, Locals& v) {
  const DF d;
  TransposeInto(v.k, v.n, chunk.steps, head.states, v.kt, kChunk);
  SmallProduct(chunk.steps, chunk.steps, LeftSide{v.q, v.n, 1}, v.kt, kChunk, v.scores, kChunk,
               nullptr, [&](size_t i, size_t j) {
                 return std::pair(size_t{0}, j < i + kProductRows ? head.states : 0);
               });
  if (head.decays) FillDecayMatrix(chunk, v.decays);
  for (size_t i = 0; i < chunk.steps; ++i) {
    float* row = v.scores + i * kChunk;
    for (size_t j = 0; j <= i && head.decays; j += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::LoadU(d, v.decays + i * kChunk + j)), d,
                 row + j);
    }
    std::fill(row + i + 1, row + kChunk, 0.0f);
  }
}

// The chunk's outputs from v.o; `causal`: v.scores count too.
void StoreOutputs(const Head& head, const AttentionChunk& chunk, bool causal, Locals& v) {
  const DF d;
  const LinearAttentionArgs& a = head.a;
  for (size_t t = 0; t < chunk.steps; ++t) {
    float* o = a.o.Row(chunk.begin + t) + head.h * head.width;
    const float* row = v.o + t * v.p;
    if (!a.normalised) {
      std::copy_n(row, head.width, o);
      continue;
    }
    VF sum = hn::Zero(d);
    for (size_t j = 0; causal && j <= t; j += hn::Lanes(d)) {
      sum = hn::Add(sum, hn::LoadU(d, v.scores + t * kChunk + j));
    }
    float normaliser = SumLanes(d, sum) + kNormaliserFloor;
    if (v.live) normaliser += chunk.since[t] * Dot(v.q + t * v.n, Normalisers(head, v), v.n);
    if (a.normaliser.rows != 0) a.normaliser.Row(chunk.begin + t)[head.h] = normaliser;
    const VF divisor = hn::Set(d, normaliser);
    ForVectors(head.width, [&](size_t i, size_t count) HWY_ATTR {
      StoreN(d, hn::Div(LoadN(d, row + i, count), divisor), o + i, count);
    });
  }
}

// The outputs of a span from the state at its beginning. `wants_state`: v.state becomes the one at
// its end; else it is undefined then.
void Outputs(const Head& head, const AttentionSpan& span, bool wants_state, Locals& v) {
  const size_t chunks = internal::Chunks(span.steps);
  for (size_t c = 0; c < chunks; ++c) {
    const AttentionChunk chunk(head, span, c);
    LoadQueries(head, chunk, v);
    LoadKeys(head, chunk, v);
    Scores(head, chunk, v);
    ChunkOutput(chunk.steps, head.width, LeftSide{v.q, v.n, 1}, head.states,
                v.live ? v.state : nullptr, chunk.since, v.scores, v.v, v.o, v.p);
    StoreOutputs(head, chunk, /*causal=*/true, v);
    if (wants_state || c + 1 < chunks) Advance(head, chunk, v);
  }
}

void AttendSequence(const LinearAttentionArgs& a, const internal::AttentionPlan& plan,
                    size_t sequence, size_t h) {
  const Head head(a, plan, h);
  Locals v;
  SetSizes(head, v);
  LoadInitial(head, sequence, v);
  Outputs(head, plan.Sequence(sequence), a.final_state.rows != 0, v);
  StoreFinal(head, sequence, v);
}

// What a span adds to a state, and what it leaves of one.
void SumSpan(const LinearAttentionArgs& a, const internal::AttentionPlan& plan, size_t index,
             size_t h) {
  const Head head(a, plan, h);
  const AttentionSpan& span = plan.spans[index];
  if (a.causal && span.last) return;
  Locals v;
  SetSizes(head, v);
  float kept = 1.0f;
  for (size_t c = 0; c < internal::Chunks(span.steps); ++c) {
    const AttentionChunk chunk(head, span, c);
    LoadKeys(head, chunk, v);
    Advance(head, chunk, v);
    kept *= chunk.kept();
  }
  const size_t size = StateFloats(head.states, head.width);
  if (!v.live) std::fill_n(v.state, size, 0.0f);
  if (!a.normalised) std::fill_n(Normalisers(head, v), v.n, 0.0f);
  std::copy_n(v.state, size, head.State(index));
  plan.decays.Row(index)[h] = kept;
}

// From what spans add to their first states; not causal: to the last state, in the place of the
// first span's.
void CarrySequence(const LinearAttentionArgs& a, const internal::AttentionPlan& plan,
                   size_t sequence, size_t h) {
  const Head head(a, plan, h);
  Locals v;
  SetSizes(head, v);
  const size_t size = StateFloats(head.states, head.width);
  std::fill_n(v.state, size, 0.0f);
  LoadInitial(head, sequence, v);
  v.live = true;
  const size_t first = plan.first_span[sequence], end = plan.first_span[sequence + 1];
  for (size_t i = first; i + (a.causal ? 1 : 0) < end; ++i) {
    CarryState(plan.decays.Row(i)[h], size, v.state, head.State(i));
  }
  if (a.causal) {
    std::copy_n(v.state, size, head.State(end - 1));
  } else {
    std::copy_n(v.state, size, head.State(first));
    StoreFinal(head, sequence, v);
  }
}

void AttendSpan(const LinearAttentionArgs& a, const internal::AttentionPlan& plan, size_t index,
                size_t h) {
  const Head head(a, plan, h);
  const AttentionSpan& span = plan.spans[index];
  Locals v;
  SetSizes(head, v);
  const size_t from = a.causal ? index : plan.first_span[span.sequence];
  std::copy_n(head.State(from), StateFloats(head.states, head.width), v.state);
  v.live = true;
  if (a.causal) {
    Outputs(head, span, span.last && a.final_state.rows != 0, v);
    if (span.last) StoreFinal(head, span.sequence, v);
    return;
  }
  for (size_t c = 0; c < internal::Chunks(span.steps); ++c) {
    const AttentionChunk chunk(head, span, c);
    LoadQueries(head, chunk, v);
    SmallProduct(chunk.steps, head.width, LeftSide{v.q, v.n, 1}, v.state, v.p, v.o, v.p, nullptr,
                 All(head.states));
    StoreOutputs(head, chunk, /*causal=*/false, v);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(AttendSequence);
HWY_EXPORT(SumSpan);
HWY_EXPORT(CarrySequence);
HWY_EXPORT(AttendSpan);

bool LinearAttentionInSpans(size_t sequences, size_t heads, size_t spans) {
  constexpr size_t kEnoughTasks = 16;
  return spans > sequences && sequences * heads < kEnoughTasks;
}

size_t LinearAttentionScratch(const LinearAttentionArgs& args) {
  core::Arena measure;
  const internal::AttentionShape shape(args);
  internal::AttentionPlan::Carve(measure, args, StateFloats(shape.states, shape.width),
                                 /*backward=*/false);
  return measure.used() / sizeof(float);
}

void LinearAttention(core::Exec& exec, const LinearAttentionArgs& args) noexcept {
  const internal::AttentionShape shape(args);
  internal::CheckOperands(args, shape);
  HOGNOSE_DCHECK(args.o.rows == args.q.rows && args.o.cols == args.v.cols);
  core::Arena arena = core::Arena::Over(args.scratch);
  const auto plan = internal::AttentionPlan::Carve(
      arena, args, StateFloats(shape.states, shape.width), /*backward=*/false);
  plan.FillSpans(args);
  plan.Run(exec, args,
           internal::AttentionPlan::Passes<LinearAttentionArgs>{
               .sequence = &HWY_DYNAMIC_DISPATCH(AttendSequence),
               .sum = &HWY_DYNAMIC_DISPATCH(SumSpan),
               .carry = &HWY_DYNAMIC_DISPATCH(CarrySequence),
               .span = &HWY_DYNAMIC_DISPATCH(AttendSpan)});
}

}  // namespace hognose::kernels
#endif
