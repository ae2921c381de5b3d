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

// A NaN wins.
HWY_INLINE VF MaxOrNan(VF first, VF then) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  const VF max = hn::Max(first, then);  // `then` where one is a NaN
#else
  const VF max = hn::IfThenElse(hn::Ge(first, then), first, then);  // here too
#endif
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

// Combine(first, then) in the lanes of the mask, `then` in the others.
template <ScanOp kOp>
HWY_INLINE Step CombineIf(hn::Mask<DF> mask, Step first, Step then) {
#if HWY_TARGET <= HWY_AVX3  // one masked instruction instead of an operation and a choice
  if constexpr (kOp == ScanOp::kLinear) {
    return {VF{_mm512_mask_mul_ps(then.a.raw, mask.raw, then.a.raw, first.a.raw)},
            VF{_mm512_mask3_fmadd_ps(then.a.raw, first.x.raw, then.x.raw, mask.raw)}};
  }
#endif
  const Step both = Combine<kOp>(first, then);
  const VF x = hn::IfThenElse(mask, both.x, then.x);
  return {kOp == ScanOp::kLinear ? hn::IfThenElse(mask, both.a, then.a) : x, x};
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
  size_t c = 0;
  // Four registers hide the latency of one step of the recurrence, two most of it.
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) {
    body(c, kLanes, std::integral_constant<size_t, 4>(), std::true_type());
  }
  if (c + 2 * kLanes <= channels) {
    body(c, kLanes, std::integral_constant<size_t, 2>(), std::true_type());
    c += 2 * kLanes;
  }
  using One = std::integral_constant<size_t, 1>;
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
