// The operators of Scan on vectors. Included once per target, see simd-inl.h.

#if defined(HOGNOSE_KERNELS_SCAN_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_SCAN_OPS_INL_H_
#undef HOGNOSE_KERNELS_SCAN_OPS_INL_H_
#else
#define HOGNOSE_KERNELS_SCAN_OPS_INL_H_
#endif

#include <type_traits>

#include "kernels/scan/scan.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kLanes = HWY_LANES(float);

// A step, or several in one: h becomes a h + x for kLinear, else op(h, x), without a.
struct Step {
  VF a, x;
};

// A NaN wins; of equal values the first one, so that zeros of both signs are associative too.
HWY_INLINE VF MaxOrNan(VF first, VF then) {
  const VF max = hn::IfThenElse(hn::Ge(first, then), first, then);  // `then` where one is NaN
  return hn::IfThenElse(hn::Eq(first, first), max, first);
}

template <ScanOp kOp>
HWY_INLINE VF Apply(VF h, Step s) {
  if constexpr (kOp == ScanOp::kLinear) return hn::MulAdd(s.a, h, s.x);
  if constexpr (kOp == ScanOp::kSum) return hn::Add(h, s.x);
  if constexpr (kOp == ScanOp::kProduct) return hn::Mul(h, s.x);
  return MaxOrNan(h, s.x);
}

template <ScanOp kOp>
HWY_INLINE Step Combine(Step first, Step then) {
  const VF x = Apply<kOp>(first.x, then);
  return {kOp == ScanOp::kLinear ? hn::Mul(then.a, first.a) : x, x};
}

// Per lane of the mask.
template <ScanOp kOp, class M>
HWY_INLINE Step Select(M mask, Step yes, Step no) {
  const VF x = hn::IfThenElse(mask, yes.x, no.x);
  return {kOp == ScanOp::kLinear ? hn::IfThenElse(mask, yes.a, no.a) : x, x};
}

// The first `count` lanes, all of them with kFull. Memory behind them is not touched.
template <bool kFull>
struct Part {
  explicit Part(size_t n) : count(n), mask(hn::FirstN(DF(), n)) {}
  HWY_INLINE VF Load(const float* p) const {
    if constexpr (kFull) return hn::LoadU(DF(), p);
#if HWY_TARGET <= HWY_AVX2
    return hn::MaskedLoad(mask, DF(), p);
#else
    return LoadTail(DF(), p, count);
#endif
  }
  HWY_INLINE void Store(VF v, float* p) const {
    if constexpr (kFull) return hn::StoreU(v, DF(), p);
#if HWY_TARGET <= HWY_AVX2
    hn::BlendedStore(v, mask, DF(), p);
#else
    StoreTail(DF(), v, p, count);
#endif
  }
  template <ScanOp kOp>
  HWY_INLINE Step LoadStep(const float* a, const float* x) const {
    const VF v = Load(x);
    return {kOp == ScanOp::kLinear ? Load(a) : v, v};
  }

  size_t count;
  hn::Mask<DF> mask;
};

// Calls body(channel, count, vectors, full), the last two as types, for all channels.
template <class Body>
HWY_INLINE void ForTiles(size_t channels, const Body& body) {
  constexpr size_t kVectors = 4;  // enough to hide the latency of one step of the recurrence
  using Four = std::integral_constant<size_t, kVectors>;
  using One = std::integral_constant<size_t, 1>;
  size_t c = 0;
  for (; c + kVectors * kLanes <= channels; c += kVectors * kLanes) {
    body(c, kLanes, Four(), std::true_type());
  }
  for (; c + kLanes <= channels; c += kLanes) body(c, kLanes, One(), std::true_type());
  if (c < channels) body(c, channels - c, One(), std::false_type());
}

// Calls body with the operator as a type.
template <class Body>
HWY_INLINE void ForOp(ScanOp op, const Body& body) {
  switch (op) {
    case ScanOp::kLinear:
      return body(std::integral_constant<ScanOp, ScanOp::kLinear>());
    case ScanOp::kSum:
      return body(std::integral_constant<ScanOp, ScanOp::kSum>());
    case ScanOp::kProduct:
      return body(std::integral_constant<ScanOp, ScanOp::kProduct>());
    case ScanOp::kMax:
      return body(std::integral_constant<ScanOp, ScanOp::kMax>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
