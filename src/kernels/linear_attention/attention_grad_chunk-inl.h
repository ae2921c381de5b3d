// linear_attention's gradient inside a chunk. States are transposed here, and when normalised v has
// a column of ones, d_o the normaliser's gradient beside it: so a state is [P', n], P' = P or
// P + 1, n = N rounded up. Matrices inside a chunk have the earlier step j as their row, the later
// step i as column. Included once per target, inside HWY_BEFORE_NAMESPACE.

#if defined(HOGNOSE_KERNELS_ATTENTION_GRAD_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_ATTENTION_GRAD_CHUNK_INL_H_
#undef HOGNOSE_KERNELS_ATTENTION_GRAD_CHUNK_INL_H_
#else
#define HOGNOSE_KERNELS_ATTENTION_GRAD_CHUNK_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/linear_attention/attention_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kMaxN = internal::TileColumns(kMaxLinearAttentionWidth);
constexpr size_t kMaxP = internal::TileColumns(kMaxLinearAttentionWidth + 1);
constexpr size_t kMaxTransposed = (kMaxLinearAttentionWidth + 1) * kMaxN;
// The states of a span's chunks; the widest heads have two.
constexpr size_t kMaxSpanStates = std::max(internal::kSpanFloats, 2 * kMaxTransposed);

// A head's matrices of the chunk at hand and its span's states, near the processor.
struct Locals {
  size_t n, p;
  bool live = false;                                       // false: dst is 0, whatever it holds
  HWY_ALIGN float q[kChunk * kMaxN], k[kChunk * kMaxN];    // [Q, n]
  HWY_ALIGN float v[kChunk * kMaxP], d_o[kChunk * kMaxP];  // [Q, p]
  HWY_ALIGN float out[kChunk * kMaxP];                     // [Q, n] or [Q, p]
  HWY_ALIGN float qt[kMaxLinearAttentionWidth * kChunk];   // [N, Q]: q transposed
  HWY_ALIGN float d_ot[kMaxP * kChunk];                    // [P', Q]: d_o transposed
  HWY_ALIGN float qk[kChunk * kChunk];                     // k_j . q_i, then times their decay
  HWY_ALIGN float dqk[kChunk * kChunk];                    // its gradient
  HWY_ALIGN float decays[kChunk * kChunk];
  HWY_ALIGN float states[kMaxSpanStates];  // [chunks, P', n]: at the chunks' beginnings
  HWY_ALIGN float dst[kMaxTransposed];     // [P', n]: of the state that leaves the chunk
  HWY_ALIGN float ds[kMaxLinearAttentionWidth * kMaxP];  // [N, p]: dst transposed
  float kept[kMaxLinearAttentionWidth + 1];
  double dsum[kChunk];  // of the exponents
};

using Head = AttentionHead<LinearAttentionGradArgs>;
using internal::AttentionSpan;

inline void SetSizes(const Head& head, Locals& v) {
  v.n = internal::TileColumns(head.states);
  v.p = internal::TileColumns(head.columns);
}

// From the caller's states and back.
inline void LoadState(const Head& head, const core::Mat<const float>& from, size_t sequence,
                      size_t n, float* to) {
  if (from.rows == 0) {
    std::fill_n(to, head.columns * n, 0.0f);
    return;
  }
  TransposeInto(from.Row(head.StateRow(sequence)), from.stride, head.states, head.columns, to, n);
  for (size_t i = 0; i < head.columns; ++i)
    std::fill(to + i * n + head.states, to + (i + 1) * n, 0.0f);
}

inline void StoreGradient(const Head& head, size_t sequence, const Locals& v) {
  const core::Mat<float>& to = head.a.dstate;
  if (to.rows == 0) return;
  float* row = to.Row(head.StateRow(sequence));
  if (v.live) return TransposeInto(v.dst, v.n, head.columns, head.states, row, to.stride);
  for (size_t i = 0; i < head.states; ++i) std::fill_n(row + i * to.stride, head.columns, 0.0f);
}

inline void LoadKeys(const Head& head, const AttentionChunk& chunk, Locals& v) {
  LoadFeatures(head.a.feature_map, head.a.k, chunk.begin, chunk.steps, head.h * head.states,
               head.states, v.n, 1.0f, v.k);
  CopyRows(head.a.v, chunk.begin, chunk.steps, head.h * head.width, head.width, v.p, v.v);
  for (size_t t = 0; t < chunk.steps && head.a.normalised; ++t) v.v[t * v.p + head.width] = 1.0f;
}

// q and the gradient of f(q) S: `scale` is in the latter.
inline void LoadQueries(const Head& head, const AttentionChunk& chunk, Locals& v) {
  const DF d;
  const LinearAttentionGradArgs& a = head.a;
  const size_t column = head.h * head.width;
  LoadFeatures(a.feature_map, a.q, chunk.begin, chunk.steps, head.h * head.states, head.states, v.n,
               1.0f, v.q);
  CopyRows(a.d_o, chunk.begin, chunk.steps, column, head.width, v.p, v.d_o);
  for (size_t t = 0; t < chunk.steps; ++t) {
    float* row = v.d_o + t * v.p;
    float weight = head.scale;
    if (a.normalised) {
      weight /= a.normaliser.Row(chunk.begin + t)[head.h];
      row[head.width] = -Dot(row, a.o.Row(chunk.begin + t) + column, head.width);
    }
    for (size_t i = 0; i < v.p; i += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::Set(d, weight), hn::LoadU(d, row + i)), d, row + i);
    }
  }
}

// Chunk by chunk S = kept S + (until v)^T k; v.v is not v afterwards.
inline void Advance(const Head& head, const AttentionChunk& chunk, bool live, float* state,
                    Locals& v) {
  if (head.decays) ScaleRowsBy(chunk.until, chunk.steps, v.p, v.v);
  std::fill_n(v.kept, head.columns, chunk.kept());
  SmallProduct(head.columns, head.states, LeftSide{v.v, 1, v.p}, v.k, v.n, state, v.n,
               live ? v.kept : nullptr, All(chunk.steps));
}

// Its way back: dS = kept dS + (since d_o)^T q; v.d_o is not the gradient afterwards.
inline void Retreat(const Head& head, const AttentionChunk& chunk, Locals& v) {
  if (head.decays) ScaleRowsBy(chunk.since, chunk.steps, v.p, v.d_o);
  std::fill_n(v.kept, head.columns, chunk.kept());
  SmallProduct(head.columns, head.states, LeftSide{v.d_o, 1, v.p}, v.q, v.n, v.dst, v.n,
               v.live ? v.kept : nullptr, All(chunk.steps));
  v.live = true;
}

// k_j . q_i, its gradient, and the exponents' part of both.
inline void Products(const Head& head, const AttentionChunk& chunk, Locals& v) {
  const size_t steps = chunk.steps;
  const auto later = [](size_t depth) {
    return [depth](size_t i, size_t j) {
      return std::pair(size_t{0}, j + kProductCols > i ? depth : 0);
    };
  };
  TransposeInto(v.q, v.n, steps, head.states, v.qt, kChunk);
  TransposeInto(v.d_o, v.p, steps, head.columns, v.d_ot, kChunk);
  SmallProduct(steps, steps, LeftSide{v.k, v.n, 1}, v.qt, kChunk, v.qk, kChunk, nullptr,
               later(head.states));
  SmallProduct(steps, steps, LeftSide{v.v, v.p, 1}, v.d_ot, kChunk, v.dqk, kChunk, nullptr,
               later(head.columns));
  if (head.decays) {
    HWY_ALIGN float ones[kChunk];
    std::fill_n(ones, kChunk, 1.0f);
    FillDecaysForward(chunk, v.decays);
    return MixingGradient(chunk, ones, v.decays, v.qk, kChunk, v.dqk, v.qk, v.dqk, v.dsum);
  }
  for (size_t j = 0; j < steps; ++j) {
    std::fill_n(v.qk + j * kChunk, j, 0.0f);
    std::fill_n(v.dqk + j * kChunk, j, 0.0f);
  }
}

inline void StoreValueGradient(const Head& head, const AttentionChunk& chunk, const Locals& v) {
  for (size_t t = 0; t < chunk.steps; ++t) {
    std::copy_n(v.out + t * v.p, head.width, head.a.dv.Row(chunk.begin + t) + head.h * head.width);
  }
}

// The gradient of x from that of f(x), both rows of n floats.
inline void StoreFeatureGradient(const Head& head, const AttentionChunk& chunk,
                                 const float* gradient, const float* features, size_t n,
                                 const core::Mat<float>& to) {
  const DF d;
  for (size_t t = 0; t < chunk.steps; ++t) {
    float* row = to.Row(chunk.begin + t) + head.h * head.states;
    ForVectors(head.states, [&](size_t i, size_t count) HWY_ATTR {
      const VF f = hn::LoadU(d, features + t * n + i);
      const VF g = hn::LoadU(d, gradient + t * n + i);
      StoreN(d, hn::Mul(g, FeatureSlope(d, head.a.feature_map, f)), row + i, count);
    });
  }
}

// dots[t] = weights[t] x_t . y_t, of `states` columns: behind them v.out may hold anything.
inline void RowDots(const float* x, const float* y, size_t n, size_t states, const float* weights,
                    size_t steps, float* dots) {
  for (size_t t = 0; t < steps; ++t) dots[t] = weights[t] * Dot(x + t * n, y + t * n, states);
}

// dv = until k dS + qk d_o.
inline void ValueGradient(const Head& head, const AttentionChunk& chunk, Locals& v) {
  if (v.live) TransposeInto(v.dst, v.n, head.columns, head.states, v.ds, v.p);
  ChunkInputGradient(chunk.steps, head.width, LeftSide{v.k, v.n, 1}, head.states,
                     v.live ? v.ds : nullptr, chunk.until, v.qk, v.d_o, v.out, v.p);
  StoreValueGradient(head, chunk, v);
}

// df(k) = until v dS^T + dqk q.
inline void KeyGradient(const Head& head, const AttentionChunk& chunk, float* into_state,
                        Locals& v) {
  if (v.live) {
    SmallProduct(chunk.steps, head.states, LeftSide{v.v, v.p, 1}, v.dst, v.n, v.out, v.n, nullptr,
                 All(head.columns));
    if (head.decays) RowDots(v.out, v.k, v.n, head.states, chunk.until, chunk.steps, into_state);
  }
  SmallProduct(chunk.steps, head.states, LeftSide{v.dqk, kChunk, 1}, v.q, v.n, v.out, v.n,
               v.live ? chunk.until : nullptr,
               [&](size_t i, size_t) { return std::pair(i, chunk.steps); });
  StoreFeatureGradient(head, chunk, v.out, v.k, v.n, head.a.dk);
}

// df(q) = since d_o S^T + dqk^T k.
inline void QueryGradient(const Head& head, const AttentionChunk& chunk, const float* state,
                          float* from_state, Locals& v) {
  if (state != nullptr) {
    SmallProduct(chunk.steps, head.states, LeftSide{v.d_o, v.p, 1}, state, v.n, v.out, v.n, nullptr,
                 All(head.columns));
    if (head.decays) RowDots(v.out, v.q, v.n, head.states, chunk.since, chunk.steps, from_state);
  }
  SmallProduct(chunk.steps, head.states, LeftSide{v.dqk, 1, kChunk}, v.k, v.n, v.out, v.n,
               state != nullptr ? chunk.since : nullptr, [&](size_t i, size_t) {
                 return std::pair(size_t{0}, std::min(i + kProductRows, chunk.steps));
               });
  StoreFeatureGradient(head, chunk, v.out, v.q, v.n, head.a.dq);
}

// `state` at the chunk's beginning; null: zeros. Does not pass v.dst on.
inline void GradChunk(const Head& head, const AttentionChunk& chunk, const float* state,
                      Locals& v) {
  LoadKeys(head, chunk, v);
  LoadQueries(head, chunk, v);
  std::fill_n(v.dsum, kChunk, 0.0);
  float from_state[kChunk] = {}, into_state[kChunk] = {};
  Products(head, chunk, v);
  ValueGradient(head, chunk, v);
  KeyGradient(head, chunk, into_state, v);
  QueryGradient(head, chunk, state, from_state, v);
  if (!head.decays) return;
  double passing = 0.0;
  for (size_t i = 0; i < head.columns && state != nullptr && v.live; ++i) {
    passing += Dot(state + i * v.n, v.dst + i * v.n, head.states);
  }
  passing *= chunk.kept();
  AddExponentGradient(chunk.steps, from_state, into_state, passing, v.dsum);
  for (size_t t = 0; t < chunk.steps; ++t) {
    head.a.dlog_decay.Row(chunk.begin + t)[head.h] = static_cast<float>(v.dsum[t]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
