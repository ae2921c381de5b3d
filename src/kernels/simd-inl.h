// Vector helpers that several kernels share: loads that convert, tails, sums, exp, SiLU.
// Included once per target, inside HWY_BEFORE_NAMESPACE; see Highway's foreach_target.

#if defined(HOGNOSE_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_SIMD_INL_H_
#undef HOGNOSE_KERNELS_SIMD_INL_H_
#else
#define HOGNOSE_KERNELS_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "codecs/float16.h"
#include "core/dtype.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Lanes(DF()) floats from p, decoded to f32.
HWY_INLINE VF LoadF32(DF d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE VF LoadF32(DF d, const core::BFloat16* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::Rebind<uint32_t, DF> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
HWY_INLINE VF LoadF32(DF d, const core::Half* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

// The first `count` (< Lanes) elements at p; the other lanes are zero. Reads nothing behind them.
template <typename T>
HWY_INLINE VF LoadTail(DF d, const T* p, size_t count) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = codecs::Decode(p[i]);
  return hn::Load(d, lanes);
}
HWY_INLINE void StoreTail(DF d, VF v, float* p, size_t count) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// Calls body(offset, count) for all full vectors of [0, size), then once for the rest, if any.
template <typename Body>
HWY_INLINE void ForVectors(size_t size, const Body& body) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) body(i, lanes);
  if (i < size) body(i, size - i);
}
HWY_INLINE VF LoadN(DF d, const float* p, size_t count) {
  return count == hn::Lanes(d) ? hn::LoadU(d, p) : LoadTail(d, p, count);
}
HWY_INLINE void StoreN(DF d, VF v, float* p, size_t count) {
  if (count == hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    StoreTail(d, v, p, count);
  }
}

// out[i] = sum of the lanes of v[i], for 4 vectors at once: a third of the work of 4 single sums.
HWY_INLINE void SumLanes4(DF d, VF v0, VF v1, VF v2, VF v3, float* out) {
#if HWY_TARGET == HWY_SCALAR
  out[0] = hn::GetLane(v0);
  out[1] = hn::GetLane(v1);
  out[2] = hn::GetLane(v2);
  out[3] = hn::GetLane(v3);
  (void)d;
#else
  const hn::RepartitionToWide<DF> dw;
  const auto pair = [d](VF a, VF b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto ab = hn::BitCast(dw, pair(v0, v1));
  const auto cd = hn::BitCast(dw, pair(v2, v3));
  const VF blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(dw, ab, cd)),
                            hn::BitCast(d, hn::InterleaveUpper(dw, ab, cd)));
  // Each 128-bit block now holds four partial sums; add the blocks.
#if HWY_TARGET <= HWY_AVX3
  const hn::Half<DF> d8;
  const hn::Half<hn::Half<DF> > d4;
  const auto sum8 = hn::Add(hn::LowerHalf(d8, blocks), hn::UpperHalf(d8, blocks));
  hn::StoreU(hn::Add(hn::LowerHalf(d4, sum8), hn::UpperHalf(d4, sum8)), d4, out);
#elif HWY_TARGET <= HWY_AVX2
  const hn::Half<DF> d4;
  hn::StoreU(hn::Add(hn::LowerHalf(d4, blocks), hn::UpperHalf(d4, blocks)), d4, out);
#else
  hn::StoreU(blocks, d, out);
#endif
#endif
}

template <class D>
HWY_INLINE float SumLanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// exp(x) = 2^k p: k the nearest integer to x / ln 2, p = exp(r) with |r| <= ln 2 / 2 by a
// polynomial. Cephes' way; relative error of p below 2^-22.
HWY_INLINE VF ExpFraction(DF d, VF x, VF* k) {
  *k = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  // ln 2 in two parts, so that k times the first is exact.
  VF r = hn::NegMulAdd(*k, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(*k, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  return hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, hn::Set(d, 1.0f)));
}

// 2^k for whole k in [-126, 127].
template <typename VI>
HWY_INLINE VF PowerOfTwo(DF d, VI k) {
  const hn::RebindToSigned<DF> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127))));
}

// Below this exp(x) is no normal number any more, and 0 here.
constexpr float kExpLowest = -87.33654f;

// exp(x) for any x: 0 below kExpLowest, infinity above 88.7; a NaN stays.
HWY_INLINE VF Exp(DF d, VF x) {
  const hn::RebindToSigned<DF> di;
  VF k;
  const VF p = ExpFraction(d, hn::Min(hn::Max(x, hn::Set(d, -88.0f)), hn::Set(d, 89.0f)), &k);
  // 2^k in two factors, so that k = 128 (just below the overflow) is right.
  const auto ki = hn::ConvertTo(di, k);
  const auto half = hn::ShiftRight<1>(ki);
  const VF result = hn::Mul(hn::Mul(p, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(ki, half)));
  const VF finite = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kExpLowest)), result);
  return hn::IfThenElse(hn::Eq(x, x), finite, x);
}

// exp(x) for x <= 0 that is no NaN: Exp without the upper end. For decays exp(dt a).
HWY_INLINE VF ExpNonPositive(DF d, VF x) {
  const hn::RebindToSigned<DF> di;
  const VF lowest = hn::Set(d, kExpLowest);
  VF k;
  const VF p = ExpFraction(d, hn::Max(x, lowest), &k);
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(p, PowerOfTwo(d, hn::ConvertTo(di, k))));
}

// 2^x for x <= 0 that is no NaN; what would be no normal number is 0 where denormals are flushed. k
// is the nearest integer to x, and 2^(x - k) a polynomial (minimax, relative error 2^-29, in f32
// 2^-23.5). For decays exp(dt a) with a scaled by log2(e) beforehand: half the work of exp.
HWY_INLINE VF Exp2NonPositive(DF d, VF x) {
  constexpr float kLowest = HWY_TARGET <= HWY_AVX3 ? -200.0f : -126.0f;
  const VF clamped = hn::Max(x, hn::Set(d, kLowest));
  const VF k = hn::Round(clamped);
  const VF r = hn::Sub(clamped, k);
  VF p = hn::Set(d, 1.534581242594868e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3399930903688073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.618489071726799e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.550328642129898e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.4022646248340607e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.931471824645996e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_scalef_ps(p.raw, k.raw)};
#else
  const hn::RebindToSigned<DF> di;
  const VF result = hn::Mul(p, PowerOfTwo(d, hn::ConvertTo(di, k)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLowest)), result);
#endif
}

// x / (1 + exp(-x)).
HWY_INLINE VF Silu(DF d, VF x) { return hn::Div(x, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x)))); }

// Silu(x), the same bits, and its derivative s + Silu(x) (1 - s), s = 1 / (1 + exp(-x)). 1 - s is
// exp(-x) s, which keeps its digits where s rounds to 1; where exp(-x) overflows both are 0.
HWY_INLINE VF SiluAndSlope(DF d, VF x, VF* slope) {
  const VF e = Exp(d, hn::Neg(x));
  const VF one = hn::Set(d, 1.0f);
  const VF denominator = hn::Add(one, e);
  const VF s = hn::Div(one, denominator);
  const VF silu = hn::Div(x, denominator);
  const VF rest = hn::Mul(hn::Min(e, hn::Set(d, 3e38f)), s);
  *slope = hn::MulAdd(silu, rest, s);
  return silu;
}

// log(1 + exp(x)); x itself above 20, as the reference has it.
HWY_INLINE VF Softplus(DF d, VF x) {
  const VF log = hn::Log1p(d, Exp(d, hn::Min(x, hn::Set(d, 20.0f))));
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 20.0f)), x, log);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
