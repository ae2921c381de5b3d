#include "kernels/expm/expm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/expm/expm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/expm/expm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/expm/dense_lu-inl.h"
#include "kernels/expm/expm_packs-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_EXPM_ONCE_
#define HOGNOSE_EXPM_ONCE_
// The working matrices of one task.
template <typename T>
struct ExpmWork {
  static constexpr size_t kMatrices = 7;
  T *a, *a2, *a4, *a6, *w, *u, *v, *pivots;

  ExpmWork(T* scratch, size_t size) {
    T* at = DenseAligned(scratch);
    for (T** matrix : {&a, &a2, &a4, &a6, &w, &u, &v, &pivots}) {
      *matrix = at;
      at += size;
    }
  }
};
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// u = r_m(a).
template <typename T, bool kLanes, size_t kOrder>
void Pade(size_t n, const ExpmWork<T>& w) {
  constexpr size_t kPowers = kOrder == 13 ? 3 : kOrder / 2;
  const size_t size = n * DenseStride<T, kLanes>(n);
  T* a8 = w.v;  // read for the last time where v is written
  Multiply<T, kLanes>(n, w.a, w.a, w.a2);
  if constexpr (kPowers > 1) Multiply<T, kLanes>(n, w.a2, w.a2, w.a4);
  if constexpr (kPowers > 2) Multiply<T, kLanes>(n, w.a4, w.a2, w.a6);
  if constexpr (kPowers > 3) Multiply<T, kLanes>(n, w.a4, w.a4, a8);
  std::array<const T*, kPowers> powers;
  const T* const all[] = {w.a2, w.a4, w.a6, a8};
  std::copy_n(all, kPowers, powers.begin());
  Combine(size, powers, PadeTerms<T, kOrder, 3, kPowers>(), w.w);
  AddToDiagonal<T, kLanes>(n, static_cast<T>(kPade<kOrder>[1]), w.w);
  if constexpr (kOrder == 13) {
    Combine(size, powers, PadeTerms<T, kOrder, 9, kPowers>(), w.u);
    Multiply<T, kLanes, Into::kAdd>(n, w.a6, w.u, w.w);
  }
  Multiply<T, kLanes>(n, w.a, w.w, w.u);
  Combine(size, powers, PadeTerms<T, kOrder, 2, kPowers>(), w.v);
  AddToDiagonal<T, kLanes>(n, static_cast<T>(kPade<kOrder>[0]), w.v);
  if constexpr (kOrder == 13) {
    Combine(size, powers, PadeTerms<T, kOrder, 8, kPowers>(), w.w);
    Multiply<T, kLanes, Into::kAdd>(n, w.a6, w.w, w.v);
  }
  SumAndDifference(size, w.u, w.v);
  FactorLu<T, kLanes>(n, w.v, w.pivots);
  SolveLu<T, kLanes>(n, w.v, w.pivots, n, w.u);
}

template <typename T, bool kLanes>
HWY_INLINE void PadeOfOrder(size_t order, size_t n, const ExpmWork<T>& w) {
  switch (order) {
    case 3:
      return Pade<T, kLanes, 3>(n, w);
    case 5:
      return Pade<T, kLanes, 5>(n, w);
    case 7:
      return Pade<T, kLanes, 7>(n, w);
    default:
      break;
  }
  if constexpr (sizeof(T) == sizeof(double)) {
    if (order == 9) return Pade<T, kLanes, 9>(n, w);
    Pade<T, kLanes, 13>(n, w);
  }
}

template <typename T, bool kLanes>
void ExpmIn(const ExpmArgs<T>& args, size_t begin, size_t end, T* scratch) {
  const size_t n = args.a.cols, stride = DenseStride<T, kLanes>(n), size = n * stride;
  const BlockOf whole = {.rows = n, .cols = n, .period = n};
  const auto not_finite = [&](size_t i) HWY_ATTR { FillWithNan(args.y, n, i); };
  const ExpmWork<T> w(scratch, size);
  ForPadePacks<T, kLanes>(args.a, false, false, begin, end, w.a, not_finite,
                          [&](const PadePack<T, kLanes>& p) HWY_ATTR {
                            LoadBlock<T, kLanes>(args.a, p.pack, whole, false, w.a, stride);
                            if (p.squarings > 0) Scale<T, kLanes>(size, p.scale, w.a, w.a);
                            PadeOfOrder<T, kLanes>(p.order, n, w);
                            T *x = w.u, *square = w.w;
                            for (size_t step = 0; step < p.squarings; ++step) {
                              Multiply<T, kLanes>(n, x, x, square);
                              KeepFinished<T, kLanes>(p, step, size, x, square);
                              std::swap(x, square);
                            }
                            StoreBlock<T, kLanes>(x, stride, p.pack, whole, args.y);
                          });
}

template <typename T>
HWY_INLINE void ExpmTask(const ExpmArgs<T>& args, size_t begin, size_t end, T* scratch) {
  const size_t n = args.a.cols;
  if (InLanes<T>(args.layout, n, args.a.rows / n)) {
    return ExpmIn<T, true>(args, begin, end, scratch);
  }
  ExpmIn<T, false>(args, begin, end, scratch);
}

void ExpmF32(const ExpmArgs<float>& args, size_t begin, size_t end, float* scratch) {
  ExpmTask(args, begin, end, scratch);
}
void ExpmF64(const ExpmArgs<double>& args, size_t begin, size_t end, double* scratch) {
  ExpmTask(args, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(ExpmF32);
HWY_EXPORT(ExpmF64);

template <typename T>
size_t TaskScratch(size_t n) {
  return DenseTaskScratch<T>(ExpmWork<T>::kMatrices * DenseSize<T>(n, n) + DensePivots<T>(n));
}

template <typename T, typename Task>
void RunTasks(core::Exec& exec, const ExpmArgs<T>& args, const Task& task) {
  const size_t n = args.a.cols;
  if (args.a.rows == 0) return;
  HOGNOSE_DCHECK(n > 0 && args.a.rows % n == 0);
  HOGNOSE_DCHECK(args.y.rows == args.a.rows && args.y.cols == n);
  HOGNOSE_DCHECK(args.scratch.size >= ExpmScratch<T>(n, args.a.rows / n));
  HOGNOSE_DCHECK(args.layout != ExpmLayout::kLanes || n <= kExpmMaxLanesSize);
  ExpmTasks(n, args.a.rows / n).Run(exec, args.scratch, TaskScratch<T>(n), task);
}

}  // namespace

template <typename T>
size_t ExpmScratch(size_t n, size_t batch) {
  return ExpmTasks(n, batch).count * TaskScratch<T>(n);
}
template size_t ExpmScratch<float>(size_t n, size_t batch);
template size_t ExpmScratch<double>(size_t n, size_t batch);

void Expm(core::Exec& exec, const ExpmArgs<float>& args) noexcept {
  RunTasks(exec, args, [&](size_t begin, size_t end, float* scratch) {
    HWY_DYNAMIC_DISPATCH(ExpmF32)(args, begin, end, scratch);
  });
}

void Expm(core::Exec& exec, const ExpmArgs<double>& args) noexcept {
  RunTasks(exec, args, [&](size_t begin, size_t end, double* scratch) {
    HWY_DYNAMIC_DISPATCH(ExpmF64)(args, begin, end, scratch);
  });
}

ExpmLayout ChooseExpmLayout(size_t n, size_t batch, size_t lanes) {
  if (n > kExpmMaxLanesSize || lanes == 1) return ExpmLayout::kRows;
  // How full vectors are: the last one of a row is partly empty, or lanes have no matrix. When both
  // are full, lanes take about 4/5 of the time.
  const size_t row = (n + lanes - 1) / lanes * lanes;
  const size_t matrices = (batch + lanes - 1) / lanes * lanes;
  return 4 * n * matrices <= 5 * batch * row ? ExpmLayout::kLanes : ExpmLayout::kRows;
}

namespace {

using Wide = long double;

// c = a b.
void MultiplyWide(size_t n, const std::vector<Wide>& a, const std::vector<Wide>& b,
                  std::vector<Wide>& c) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      Wide sum = 0;
      for (size_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
  }
}

// The Taylor series of a / 2^s, whose norm is below 1/4: 20 terms leave less than 2^-100.
std::vector<Wide> ExpmWide(size_t n, std::vector<Wide> a) {
  Wide norm = 0;
  for (size_t i = 0; i < n; ++i) {
    Wide sum = 0;
    for (size_t j = 0; j < n; ++j) sum += std::abs(a[i * n + j]);
    norm = std::max(norm, sum);
  }
  int squarings = 0;
  for (; norm > Wide{0.25}; norm /= 2) ++squarings;
  for (Wide& v : a) v = std::ldexp(v, -squarings);
  std::vector<Wide> sum(n * n), term(n * n), next(n * n);
  for (size_t i = 0; i < n; ++i) sum[i * n + i] = term[i * n + i] = 1;
  for (int k = 1; k <= 20; ++k) {
    MultiplyWide(n, term, a, next);
    for (size_t i = 0; i < n * n; ++i) {
      term[i] = next[i] / k;
      sum[i] += term[i];
    }
  }
  for (; squarings > 0; --squarings) {
    MultiplyWide(n, sum, sum, next);
    sum.swap(next);
  }
  return sum;
}

}  // namespace

template <typename T>
void ExpmRef(const ExpmArgs<T>& args) {
  const size_t n = args.a.cols;
  for (size_t begin = 0; begin < args.a.rows; begin += n) {
    std::vector<Wide> a(n * n);
    for (size_t i = 0; i < n * n; ++i) a[i] = args.a.Row(begin + i / n)[i % n];
    const std::vector<Wide> y = ExpmWide(n, std::move(a));
    for (size_t i = 0; i < n * n; ++i) args.y.Row(begin + i / n)[i % n] = static_cast<T>(y[i]);
  }
}
template void ExpmRef(const ExpmArgs<float>& args);
template void ExpmRef(const ExpmArgs<double>& args);

}  // namespace hognose::kernels
#endif
