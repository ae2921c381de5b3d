#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/expm/expm.h"
#include "kernels/expm/expm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/expm/expm_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/expm/dense_lu-inl.h"
#include "kernels/expm/expm_packs-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_EXPM_GRAD_ONCE_
#define HOGNOSE_EXPM_GRAD_ONCE_
// The working matrices of one task: of every matrix of Expm also the derivative along e.
template <typename T>
struct FrechetWork {
  static constexpr size_t kMatrices = 16;
  T *a, *a2, *a4, *a6, *w, *z, *u, *v;
  T *e, *m2, *m4, *m6, *dw, *dz, *du, *dv, *pivots;

  FrechetWork(T* scratch, size_t size) {
    T* at = DenseAligned(scratch);
    for (T** matrix :
         {&a, &a2, &a4, &a6, &w, &z, &u, &v, &e, &m2, &m4, &m6, &dw, &dz, &du, &dv, &pivots}) {
      *matrix = at;
      at += size;
    }
  }
};

// What ExpmFrechet and ExpmGrad have in common; `y` may be empty.
template <typename T>
struct FrechetCall {
  core::Mat<const T> a, e;
  core::Mat<T> y, dy;
  bool transpose;  // a is its transpose
  ExpmLayout layout;
};
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// c = a b and dc = a db + da b.
template <typename T, bool kLanes>
HWY_INLINE void MultiplyBoth(size_t n, const T* a, const T* da, const T* b, const T* db, T* c,
                             T* dc) {
  Multiply<T, kLanes>(n, a, b, c);
  Multiply<T, kLanes>(n, a, db, dc);
  Multiply<T, kLanes, Into::kAdd>(n, da, b, dc);
}

// The same, added to what c and dc are.
template <typename T, bool kLanes>
HWY_INLINE void AddProducts(size_t n, const T* a, const T* da, const T* b, const T* db, T* c,
                            T* dc) {
  Multiply<T, kLanes, Into::kAdd>(n, a, b, c);
  Multiply<T, kLanes, Into::kAdd>(n, a, db, dc);
  Multiply<T, kLanes, Into::kAdd>(n, da, b, dc);
}

// u = r_m(a) and du its derivative along e.
template <typename T, bool kLanes, size_t kOrder>
void PadeAndDerivative(size_t n, const FrechetWork<T>& w) {
  constexpr size_t kPowers = kOrder == 13 ? 3 : kOrder / 2;
  const size_t size = n * DenseStride<T, kLanes>(n);
  T *a8 = w.z, *m8 = w.dz;
  MultiplyBoth<T, kLanes>(n, w.a, w.e, w.a, w.e, w.a2, w.m2);
  if constexpr (kPowers > 1) MultiplyBoth<T, kLanes>(n, w.a2, w.m2, w.a2, w.m2, w.a4, w.m4);
  if constexpr (kPowers > 2) MultiplyBoth<T, kLanes>(n, w.a4, w.m4, w.a2, w.m2, w.a6, w.m6);
  if constexpr (kPowers > 3) MultiplyBoth<T, kLanes>(n, w.a4, w.m4, w.a4, w.m4, a8, m8);
  std::array<const T*, kPowers> powers, derivatives;
  const T *const all[] = {w.a2, w.a4, w.a6, a8}, *const all_derivatives[] = {w.m2, w.m4, w.m6, m8};
  std::copy_n(all, kPowers, powers.begin());
  std::copy_n(all_derivatives, kPowers, derivatives.begin());
  const auto combine = [&](const std::array<T, kPowers>& terms, T* to, T* dto) HWY_ATTR {
    Combine(size, powers, terms, to);
    Combine(size, derivatives, terms, dto);
  };
  combine(PadeTerms<T, kOrder, 3, kPowers>(), w.w, w.dw);
  AddToDiagonal<T, kLanes>(n, static_cast<T>(kPade<kOrder>[1]), w.w);
  combine(PadeTerms<T, kOrder, 2, kPowers>(), w.v, w.dv);
  AddToDiagonal<T, kLanes>(n, static_cast<T>(kPade<kOrder>[0]), w.v);
  if constexpr (kOrder == 13) {
    combine(PadeTerms<T, kOrder, 9, kPowers>(), w.z, w.dz);
    AddProducts<T, kLanes>(n, w.a6, w.m6, w.z, w.dz, w.w, w.dw);
    combine(PadeTerms<T, kOrder, 8, kPowers>(), w.z, w.dz);
    AddProducts<T, kLanes>(n, w.a6, w.m6, w.z, w.dz, w.v, w.dv);
  }
  MultiplyBoth<T, kLanes>(n, w.a, w.e, w.w, w.dw, w.u, w.du);
  SumAndDifference(size, w.u, w.v);
  SumAndDifference(size, w.du, w.dv);
  FactorLu<T, kLanes>(n, w.v, w.pivots);
  SolveLu<T, kLanes>(n, w.v, w.pivots, n, w.u);
  // q r = p, so q dr = dp - dq r, where dq = dv - du.
  Multiply<T, kLanes, Into::kSubtract>(n, w.dv, w.u, w.du);
  SolveLu<T, kLanes>(n, w.v, w.pivots, n, w.du);
}

template <typename T, bool kLanes>
HWY_INLINE void DerivativeOfOrder(size_t order, size_t n, const FrechetWork<T>& w) {
  switch (order) {
    case 3:
      return PadeAndDerivative<T, kLanes, 3>(n, w);
    case 5:
      return PadeAndDerivative<T, kLanes, 5>(n, w);
    case 7:
      return PadeAndDerivative<T, kLanes, 7>(n, w);
    default:
      break;
  }
  if constexpr (sizeof(T) == sizeof(double)) {
    if (order == 9) return PadeAndDerivative<T, kLanes, 9>(n, w);
    PadeAndDerivative<T, kLanes, 13>(n, w);
  }
}

template <typename T, bool kLanes>
void FrechetIn(const FrechetCall<T>& call, size_t begin, size_t end, T* scratch) {
  const size_t n = call.a.cols, stride = DenseStride<T, kLanes>(n), size = n * stride;
  const BlockOf whole = {.rows = n, .cols = n, .period = n};
  const auto not_finite = [&](size_t i) HWY_ATTR {
    if (call.y.rows != 0) FillWithNan(call.y, n, i);
    FillWithNan(call.dy, n, i);
  };
  FrechetWork<T> w(scratch, size);
  ForPadePacks<T, kLanes>(call.a, call.transpose, true, begin, end, w.a, not_finite,
                          [&](const PadePack<T, kLanes>& p) HWY_ATTR {
                            LoadBlock<T, kLanes>(call.a, p.pack, whole, call.transpose, w.a,
                                                 stride);
                            LoadBlock<T, kLanes>(call.e, p.pack, whole, false, w.e, stride);
                            if (p.squarings > 0) {
                              Scale<T, kLanes>(size, p.scale, w.a, w.a);
                              Scale<T, kLanes>(size, p.scale, w.e, w.e);
                            }
                            DerivativeOfOrder<T, kLanes>(p.order, n, w);
                            T *x = w.u, *dx = w.du, *square = w.w, *dsquare = w.dw;
                            for (size_t step = 0; step < p.squarings; ++step) {
                              MultiplyBoth<T, kLanes>(n, x, dx, x, dx, square, dsquare);
                              KeepFinished<T, kLanes>(p, step, size, x, square);
                              KeepFinished<T, kLanes>(p, step, size, dx, dsquare);
                              std::swap(x, square);
                              std::swap(dx, dsquare);
                            }
                            if (call.y.rows != 0)
                              StoreBlock<T, kLanes>(x, stride, p.pack, whole, call.y);
                            StoreBlock<T, kLanes>(dx, stride, p.pack, whole, call.dy);
                          });
}

template <typename T>
HWY_INLINE void FrechetTask(const FrechetCall<T>& call, size_t begin, size_t end, T* scratch) {
  const size_t n = call.a.cols;
  if (InLanes<T>(call.layout, n, call.a.rows / n)) {
    return FrechetIn<T, true>(call, begin, end, scratch);
  }
  FrechetIn<T, false>(call, begin, end, scratch);
}

void FrechetF32(const FrechetCall<float>& call, size_t begin, size_t end, float* scratch) {
  FrechetTask(call, begin, end, scratch);
}
void FrechetF64(const FrechetCall<double>& call, size_t begin, size_t end, double* scratch) {
  FrechetTask(call, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(FrechetF32);
HWY_EXPORT(FrechetF64);

template <typename T>
size_t TaskScratch(size_t n) {
  return DenseTaskScratch<T>(FrechetWork<T>::kMatrices * DenseSize<T>(n, n) + DensePivots<T>(n));
}

template <typename T>
void Run(core::Exec& exec, const FrechetCall<T>& call, core::Vec<T> scratch) {
  const size_t n = call.a.cols;
  if (call.a.rows == 0) return;
  HOGNOSE_DCHECK(n > 0 && call.a.rows % n == 0);
  HOGNOSE_DCHECK(call.e.rows == call.a.rows && call.e.cols == n);
  HOGNOSE_DCHECK(call.dy.rows == call.a.rows && call.dy.cols == n);
  HOGNOSE_DCHECK(call.y.rows == 0 || (call.y.rows == call.a.rows && call.y.cols == n));
  HOGNOSE_DCHECK(scratch.size >= ExpmGradScratch<T>(n, call.a.rows / n));
  HOGNOSE_DCHECK(call.layout != ExpmLayout::kLanes || n <= kExpmMaxLanesSize);
  const auto task = [&](size_t begin, size_t end, T* own) {
    if constexpr (sizeof(T) == sizeof(float)) {
      HWY_DYNAMIC_DISPATCH(FrechetF32)(call, begin, end, own);
    } else {
      HWY_DYNAMIC_DISPATCH(FrechetF64)(call, begin, end, own);
    }
  };
  ExpmTasks(n, call.a.rows / n).Run(exec, scratch, TaskScratch<T>(n), task);
}

template <typename T>
void Frechet(core::Exec& exec, const ExpmFrechetArgs<T>& args) {
  Run<T>(exec, {args.a, args.e, args.y, args.dy, false, args.layout}, args.scratch);
}

template <typename T>
void Grad(core::Exec& exec, const ExpmGradArgs<T>& args) {
  Run<T>(exec, {args.a, args.dy, {}, args.da, true, args.layout}, args.scratch);
}

}  // namespace

template <typename T>
size_t ExpmGradScratch(size_t n, size_t batch) {
  return ExpmTasks(n, batch).count * TaskScratch<T>(n);
}
template size_t ExpmGradScratch<float>(size_t n, size_t batch);
template size_t ExpmGradScratch<double>(size_t n, size_t batch);

void ExpmFrechet(core::Exec& exec, const ExpmFrechetArgs<float>& args) noexcept {
  Frechet(exec, args);
}
void ExpmFrechet(core::Exec& exec, const ExpmFrechetArgs<double>& args) noexcept {
  Frechet(exec, args);
}
void ExpmGrad(core::Exec& exec, const ExpmGradArgs<float>& args) noexcept { Grad(exec, args); }
void ExpmGrad(core::Exec& exec, const ExpmGradArgs<double>& args) noexcept { Grad(exec, args); }

// exp([[a, e], [0, a]]) = [[exp(a), L(a, e)], [0, exp(a)]].
template <typename T>
void ExpmFrechetRef(const ExpmFrechetArgs<T>& args) {
  const size_t n = args.a.cols;
  for (size_t begin = 0; begin < args.a.rows; begin += n) {
    std::vector<T> block(4 * n * n);
    const core::Mat<T> m = {block.data(), 2 * n, 2 * n, 2 * n};
    for (size_t i = 0; i < n; ++i) {
      std::copy_n(args.a.Row(begin + i), n, m.Row(i));
      std::copy_n(args.e.Row(begin + i), n, m.Row(i) + n);
      std::copy_n(args.a.Row(begin + i), n, m.Row(n + i) + n);
    }
    ExpmRef<T>({.a = m, .y = m});
    for (size_t i = 0; i < n; ++i) {
      if (args.y.rows != 0) std::copy_n(m.Row(i), n, args.y.Row(begin + i));
      std::copy_n(m.Row(i) + n, n, args.dy.Row(begin + i));
    }
  }
}
template void ExpmFrechetRef(const ExpmFrechetArgs<float>& args);
template void ExpmFrechetRef(const ExpmFrechetArgs<double>& args);

}  // namespace hognose::kernels
#endif
