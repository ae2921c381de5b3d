// What scans of a matrix state S = exp(g) S + b^T x, y = c S do inside a chunk of steps, forward
// and back (ssd_scan; linear_attention with c = q, b = k, x = v). s is the inclusive sum of the
// exponents g since the chunk's start. Included once per target, inside HWY_BEFORE_NAMESPACE.

#if defined(HOGNOSE_KERNELS_STATE_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_STATE_CHUNKS_INL_H_
#undef HOGNOSE_KERNELS_STATE_CHUNKS_INL_H_
#else
#define HOGNOSE_KERNELS_STATE_CHUNKS_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "core/tensor.h"
#include "hwy/highway.h"
#include "kernels/product_tile-inl.h"
#include "kernels/state_chunks.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

using internal::kChunk;

// The range of SmallProduct for a matrix without zeros.
HWY_INLINE auto All(size_t end) {
  return [end](size_t, size_t) { return std::pair(size_t{0}, end); };
}

HWY_INLINE float Dot(const float* x, const float* y, size_t size) {
  const DF d;
  VF sum = hn::Zero(d);
  ForVectors(size, [&](size_t i, size_t count) HWY_ATTR {
    sum = hn::MulAdd(LoadN(d, x + i, count), LoadN(d, y + i, count), sum);
  });
  return SumLanes(d, sum);
}

// Columns [column, column + width) of rows of a matrix into rows of p floats, filled up with zeros.
HWY_INLINE void CopyRows(const core::Mat<const float>& from, size_t begin, size_t steps,
                         size_t column, size_t width, size_t p, float* to) {
  for (size_t t = 0; t < steps; ++t) {
    std::copy_n(from.Row(begin + t) + column, width, to + t * p);
    std::fill(to + t * p + width, to + (t + 1) * p, 0.0f);
  }
}

// s of one chunk, in two floats each: differences of them are exponents, and one float would lose
// their small ones behind a large one. Behind the last step the sum stays.
struct ChunkSums {
  size_t steps;
  HWY_ALIGN float sum[kChunk];
  HWY_ALIGN float sum_lo[kChunk];

  void FillBehind(float last, float last_lo) {
    std::fill(sum + steps, sum + kChunk, last);
    std::fill(sum_lo + steps, sum_lo + kChunk, last_lo);
  }
};

// exp(min((x + x_lo) - (y + y_lo), 0)).
HWY_INLINE VF DecayBetween(DF d, VF x, VF x_lo, VF y, VF y_lo) {
  const VF difference = hn::Add(hn::Sub(x, y), hn::Sub(x_lo, y_lo));
  return ExpNonPositive(d, hn::Min(difference, hn::Zero(d)));
}

// since[i] = exp(s_i): what the chunk's first state has left; until[j] = exp(s_end - s_j): what a
// step has left at the chunk's end. kChunk values each.
HWY_INLINE void FillDecays(const ChunkSums& chunk, float* since, float* until) {
  const DF d;
  const VF zero = hn::Zero(d);
  const VF end = hn::Set(d, chunk.sum[kChunk - 1]), end_lo = hn::Set(d, chunk.sum_lo[kChunk - 1]);
  for (size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
    const VF s = hn::Load(d, chunk.sum + i), s_lo = hn::Load(d, chunk.sum_lo + i);
    hn::StoreU(DecayBetween(d, s, s_lo, zero, zero), d, since + i);
    hn::StoreU(DecayBetween(d, end, end_lo, s, s_lo), d, until + i);
  }
}

// Rows i < steps, kChunk long each: decays[i, j] = exp(s_i - s_j) for j <= i, 0 for j > i.
HWY_INLINE void FillDecayMatrix(const ChunkSums& chunk, float* decays) {
  const DF d;
  for (size_t i = 0; i < chunk.steps; ++i) {
    float* row = decays + i * kChunk;
    const VF s = hn::Set(d, chunk.sum[i]), s_lo = hn::Set(d, chunk.sum_lo[i]);
    for (size_t j = 0; j <= i; j += hn::Lanes(d)) {
      hn::StoreU(
          DecayBetween(d, s, s_lo, hn::Load(d, chunk.sum + j), hn::Load(d, chunk.sum_lo + j)), d,
          row + j);
    }
    std::fill(row + i + 1, row + kChunk, 0.0f);
  }
}

// Its transpose: rows j < steps: decays[j, i] = exp(s_i - s_j) for i >= j, 0 for i < j.
HWY_INLINE void FillDecaysForward(const ChunkSums& chunk, float* decays) {
  const DF d;
  for (size_t j = 0; j < chunk.steps; ++j) {
    float* row = decays + j * kChunk;
    const VF s = hn::Set(d, chunk.sum[j]), s_lo = hn::Set(d, chunk.sum_lo[j]);
    for (size_t i = j / hn::Lanes(d) * hn::Lanes(d); i < kChunk; i += hn::Lanes(d)) {
      hn::StoreU(
          DecayBetween(d, hn::Load(d, chunk.sum + i), hn::Load(d, chunk.sum_lo + i), s, s_lo), d,
          row + i);
    }
    std::fill(row, row + j, 0.0f);
  }
}

// y = since c S + mixing x for `cols` columns. S [states, cols] may be null: zeros. mixing [Q, Q]:
// row i, column j <= i: what step j gives to step i; zero for j > i. Rows of S, x and y have
// `stride` floats.
HWY_INLINE void ChunkOutput(size_t steps, size_t cols, LeftSide c, size_t states,
                            const float* state, const float* since, const float* mixing,
                            const float* x, float* y, size_t stride) {
  if (state != nullptr) {
    SmallProduct(steps, cols, c, state, stride, y, stride, nullptr, All(states));
  }
  SmallProduct(steps, cols, LeftSide{mixing, kChunk, 1}, x, stride, y, stride,
               state != nullptr ? since : nullptr, [&](size_t i, size_t) {
                 return std::pair(size_t{0}, std::min(i + kProductRows, steps));
               });
}

// Its way back: dx = until b dS + mixing dy, with mixing's earlier step j as row and its later step
// i as column. dS, of the state that leaves the chunk, may be null: zeros.
HWY_INLINE void ChunkInputGradient(size_t steps, size_t cols, LeftSide b, size_t states,
                                   const float* ds, const float* until, const float* mixing,
                                   const float* dy, float* dx, size_t stride) {
  if (ds != nullptr) SmallProduct(steps, cols, b, ds, stride, dx, stride, nullptr, All(states));
  SmallProduct(steps, cols, LeftSide{mixing, kChunk, 1}, dy, stride, dx, stride,
               ds != nullptr ? until : nullptr,
               [&](size_t i, size_t) { return std::pair(i, steps); });
}

// From dm[j, i] = x_j . dy_i: mixing = cb decays, dcb = dt dm decays (the gradient of b_j . c_i),
// and what the exponents get through both: dsum[t] += the sum over j < t <= i of dt dm mixing.
// Rows j, columns i; mixing and dcb are zero for i < j.
HWY_INLINE void MixingGradient(const ChunkSums& chunk, const float* dts, const float* decays,
                               const float* cb, size_t cb_stride, const float* dm, float* mixing,
                               float* dcb, double* dsum) {
  const DF d;
  HWY_ALIGN float prefix[kChunk] = {};
  for (size_t j = 0; j < chunk.steps; ++j) {
    const VF dt = hn::Set(d, dts[j]);
    const size_t from = j / hn::Lanes(d) * hn::Lanes(d);
    std::fill_n(mixing + j * kChunk, from, 0.0f);
    std::fill_n(dcb + j * kChunk, from, 0.0f);
    VF later = hn::Zero(d);  // the sum over i > j of what steps up to j give to step i
    for (size_t i = from; i < kChunk; i += hn::Lanes(d)) {
      const VF decay = hn::LoadU(d, decays + j * kChunk + i);
      // What lies behind the last step is no number that counts.
      const auto real =
          hn::Lt(hn::Iota(d, static_cast<float>(i)), hn::Set(d, static_cast<float>(chunk.steps)));
      const VF dmi = hn::IfThenElseZero(real, hn::LoadU(d, dm + j * kChunk + i));
      const VF cbi = hn::IfThenElseZero(real, hn::LoadU(d, cb + j * cb_stride + i));
      const VF mix = hn::Mul(cbi, decay), through = hn::Mul(dmi, dt);
      hn::StoreU(mix, d, mixing + j * kChunk + i);
      hn::StoreU(hn::Mul(through, decay), d, dcb + j * kChunk + i);
      const VF sum = hn::MulAdd(through, mix, hn::Load(d, prefix + i));
      hn::Store(sum, d, prefix + i);
      const auto after =
          hn::Gt(hn::Iota(d, static_cast<float>(i)), hn::Set(d, static_cast<float>(j)));
      later = hn::Add(later, hn::IfThenElseZero(after, sum));
    }
    if (j + 1 < chunk.steps) dsum[j + 1] += SumLanes(d, later);
  }
}

// What the exponents get through the states: from_state[i] is what step i's output has from the
// chunk's first state, times its gradient; into_state[j] what step j gives to the last state;
// passing what the first state gives to the last.
HWY_INLINE void AddExponentGradient(size_t steps, const float* from_state, const float* into_state,
                                    double passing, double* dsum) {
  double later = 0.0, earlier = 0.0;
  for (size_t t = steps; t-- > 0;) {
    later += from_state[t];
    dsum[t] += later;
  }
  for (size_t t = 0; t + 1 < steps; ++t) {
    earlier += into_state[t];
    dsum[t + 1] += earlier;
  }
  for (size_t t = 0; t < steps; ++t) dsum[t] += passing;
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
