#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/discretize/block.h"
#include "kernels/discretize/discretize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/discretize/discretize_diagonal.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

namespace hognose::kernels {
#ifndef HOGNOSE_DISCRETIZE_DIAGONAL_ONCE_
#define HOGNOSE_DISCRETIZE_DIAGONAL_ONCE_
// phi'(z) = sum of (k + 1) / (k + 2)! z^k. For |z| <= 1 so many terms leave less than 2^-54.
inline constexpr std::array<double, 18> kPhiSlope = [] {
  std::array<double, 18> terms = {};
  double factorial = 2.0;  // (k + 2)!
  for (size_t k = 0; k < terms.size(); ++k) {
    terms[k] = static_cast<double>(k + 1) / factorial;
    factorial *= static_cast<double>(k + 3);
  }
  return terms;
}();
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The first `count` numbers at p, in a vector; nothing behind them is read or written.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Load(D d, const T* p, size_t count) {
  if (count == hn::Lanes(d)) return hn::LoadU(d, p);
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  std::copy_n(p, count, lanes);
  return hn::Load(d, lanes);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void Store(D d, hn::Vec<D> v, T* p, size_t count) {
  if (count == hn::Lanes(d)) return hn::StoreU(v, d, p);
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::copy_n(lanes, count, p);
}

// What a method makes of an entry of a: abar = value, bbar = factor b, and their slopes.
template <class D>
struct Entry {
  hn::Vec<D> value, factor;
  hn::Vec<D> value_a, value_dt, factor_a, factor_dt;  // only with kSlopes
};

template <class D, bool kSlopes>
HWY_INLINE Entry<D> HoldEntry(D d, hn::Vec<D> a, hn::Vec<D> dt) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  const auto z = hn::Mul(dt, a);
  // Beyond these exp is 0 or an infinity; Highway's functions want whole numbers of ln 2 that fit.
  constexpr T kLeast = sizeof(T) == 4 ? T{-110} : T{-1100};
  constexpr T kMost = sizeof(T) == 4 ? T{90} : T{720};
  const auto clamped = hn::Min(hn::Max(z, hn::Set(d, kLeast)), hn::Set(d, kMost));
  const auto is_number = hn::Eq(z, z);
  const auto exp = hn::IfThenElse(is_number, hn::Exp(d, clamped), z);
  const auto expm1 = hn::IfThenElse(is_number, hn::Expm1(d, clamped), z);
  const auto magnitude = hn::Abs(z);
  // phi = 1 + z / 2 + ...: where z is below eps, 1.
  const auto tiny = hn::Lt(magnitude, hn::Set(d, std::numeric_limits<T>::epsilon()));
  const auto safe = hn::IfThenElse(tiny, one, z);
  const auto phi = hn::IfThenElse(tiny, one, hn::Div(expm1, safe));
  Entry<D> e;
  e.value = exp;
  e.factor = hn::Mul(dt, phi);
  if constexpr (kSlopes) {
    auto series = hn::Set(d, static_cast<T>(kPhiSlope.back()));
    for (size_t k = kPhiSlope.size() - 1; k-- > 0;) {
      series = hn::MulAdd(series, z, hn::Set(d, static_cast<T>(kPhiSlope[k])));
    }
    const auto closed = hn::Div(hn::Sub(exp, phi), safe);
    const auto slope = hn::IfThenElse(hn::Le(magnitude, one), series, closed);
    e.value_a = hn::Mul(dt, exp);
    e.value_dt = hn::Mul(a, exp);
    e.factor_a = hn::Mul(hn::Mul(dt, dt), slope);
    e.factor_dt = exp;
  }
  return e;
}

template <class D, bool kSlopes>
HWY_INLINE Entry<D> BilinearEntry(D d, hn::Vec<D> a, hn::Vec<D> dt) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  const auto half = hn::Mul(hn::Set(d, T{0.5}), dt);
  const auto below = hn::NegMulAdd(half, a, one);
  Entry<D> e;
  e.value = hn::Div(hn::MulAdd(half, a, one), below);
  e.factor = hn::Div(dt, below);
  if constexpr (kSlopes) {
    const auto square = hn::Div(one, hn::Mul(below, below));
    e.value_a = hn::Mul(dt, square);
    e.value_dt = hn::Mul(a, square);
    e.factor_a = hn::Mul(hn::Mul(dt, half), square);
    e.factor_dt = square;
  }
  return e;
}

template <class D, bool kSlopes>
HWY_INLINE Entry<D> EulerEntry(D d, hn::Vec<D> a, hn::Vec<D> dt) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  Entry<D> e;
  e.value = hn::MulAdd(dt, a, one);
  e.factor = dt;
  if constexpr (kSlopes) {
    e.value_a = dt;
    e.value_dt = a;
    e.factor_a = hn::Zero(d);
    e.factor_dt = one;
  }
  return e;
}

template <class D, bool kSlopes>
HWY_INLINE Entry<D> MakeEntry(DiscretizeMethod method, D d, hn::Vec<D> a, hn::Vec<D> dt) {
  switch (method) {
    case DiscretizeMethod::kZeroOrderHold:
      return HoldEntry<D, kSlopes>(d, a, dt);
    case DiscretizeMethod::kBilinear:
      return BilinearEntry<D, kSlopes>(d, a, dt);
    default:
      return EulerEntry<D, kSlopes>(d, a, dt);
  }
}

template <typename T>
HWY_INLINE void SystemForward(const DiscretizeArgs<T>& args, size_t s) {
  const hn::ScalableTag<T> d;
  const size_t n = args.a.cols, m = args.b.cols;
  const T* a = args.a.Row(s);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const size_t count = std::min(hn::Lanes(d), n - i);
    const auto e = MakeEntry<decltype(d), false>(args.method, d, Load(d, a + i, count),
                                                 hn::Set(d, args.dt[s]));
    Store(d, e.value, args.abar.Row(s) + i, count);
    HWY_ALIGN T factor[hn::MaxLanes(d)];
    hn::Store(e.factor, d, factor);
    for (size_t k = 0; k < count; ++k) {
      const T* b = args.b.Row(s * n + i + k);
      T* bbar = args.bbar.Row(s * n + i + k);
      for (size_t c = 0; c < m; ++c) bbar[c] = factor[k] * b[c];
    }
  }
}

template <typename T>
HWY_INLINE void SystemGrad(const DiscretizeGradArgs<T>& args, size_t s) {
  const hn::ScalableTag<T> d;
  const size_t n = args.a.cols, m = args.b.cols;
  auto ddt = hn::Zero(d);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const size_t count = std::min(hn::Lanes(d), n - i);
    const auto e = MakeEntry<decltype(d), true>(args.method, d, Load(d, args.a.Row(s) + i, count),
                                                hn::Set(d, args.dt[s]));
    HWY_ALIGN T factor[hn::MaxLanes(d)];
    HWY_ALIGN T along_b[hn::MaxLanes(d)] = {};
    hn::Store(e.factor, d, factor);
    for (size_t k = 0; k < count; ++k) {
      const size_t row = s * n + i + k;
      const T *b = args.b.Row(row), *dbbar = args.dbbar.Row(row);
      T* db = args.db.Row(row);
      for (size_t c = 0; c < m; ++c) {
        along_b[k] += dbbar[c] * b[c];
        db[c] = factor[k] * dbbar[c];
      }
    }
    const auto g = hn::Load(d, along_b);
    const auto dabar = Load(d, args.dabar.Row(s) + i, count);
    Store(d, hn::MulAdd(dabar, e.value_a, hn::Mul(g, e.factor_a)), args.da.Row(s) + i, count);
    // Lanes behind the last entry have zeros on the left of both.
    ddt = hn::Add(ddt, hn::MulAdd(dabar, e.value_dt, hn::Mul(g, e.factor_dt)));
  }
  args.ddt[s] = hn::GetLane(hn::SumOfLanes(d, ddt));
}

void ForwardF32(const DiscretizeArgs<float>& args, size_t s) { SystemForward(args, s); }
void ForwardF64(const DiscretizeArgs<double>& args, size_t s) { SystemForward(args, s); }
void GradF32(const DiscretizeGradArgs<float>& args, size_t s) { SystemGrad(args, s); }
void GradF64(const DiscretizeGradArgs<double>& args, size_t s) { SystemGrad(args, s); }

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardF64);
HWY_EXPORT(GradF32);
HWY_EXPORT(GradF64);

template <typename Args>
void Check(const Args& args) {
  HOGNOSE_DCHECK(args.a.rows == args.dt.size && args.b.cols > 0);
  HOGNOSE_DCHECK(args.b.rows == args.dt.size * args.a.cols);
  (void)args;
}

}  // namespace

void DiscretizeDiagonal(core::Exec& exec, const DiscretizeArgs<float>& args) noexcept {
  Check(args);
  RunSystems(exec, args.dt.size, args.a.cols * (1 + args.b.cols), [&](size_t s) {
    HWY_DYNAMIC_DISPATCH(ForwardF32)(args, s);
  });
}
void DiscretizeDiagonal(core::Exec& exec, const DiscretizeArgs<double>& args) noexcept {
  Check(args);
  RunSystems(exec, args.dt.size, args.a.cols * (1 + args.b.cols), [&](size_t s) {
    HWY_DYNAMIC_DISPATCH(ForwardF64)(args, s);
  });
}

void DiscretizeDiagonalGrad(core::Exec& exec, const DiscretizeGradArgs<float>& args) noexcept {
  Check(args);
  RunSystems(exec, args.dt.size, args.a.cols * (1 + args.b.cols), [&](size_t s) {
    HWY_DYNAMIC_DISPATCH(GradF32)(args, s);
  });
}
void DiscretizeDiagonalGrad(core::Exec& exec, const DiscretizeGradArgs<double>& args) noexcept {
  Check(args);
  RunSystems(exec, args.dt.size, args.a.cols * (1 + args.b.cols), [&](size_t s) {
    HWY_DYNAMIC_DISPATCH(GradF64)(args, s);
  });
}

}  // namespace hognose::kernels
#endif
