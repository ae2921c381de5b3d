#include "kernels/spectral_radius/spectral_radius.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/expm/expm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/spectral_radius/spectral_radius.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/expm/dense-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// The largest sum of magnitudes of a row; NaN when one is no finite number.
double RowNorm(size_t n, const double* x, size_t stride) {
  const DenseTag<double> d;
  double norm = 0.0;
  bool finite = true;
  for (size_t i = 0; i < n; ++i, x += stride) {
    auto sum = hn::Zero(d);
    for (size_t j = 0; j < stride; j += hn::Lanes(d)) {
      sum = hn::Add(sum, hn::Abs(hn::LoadU(d, x + j)));
    }
    const double total = hn::GetLane(hn::SumOfLanes(d, sum));
    finite = finite && total <= std::numeric_limits<double>::max();
    norm = std::max(norm, total);
  }
  return finite ? norm : std::numeric_limits<double>::quiet_NaN();
}

// Of the n x n matrix in x's rows; both working matrices are overwritten.
double RadiusOf(size_t n, double* x, double* square) {
  const size_t stride = DenseStride<double, false>(n);
  double log2_rho = 0.0;  // without the first exponent, which may be large
  int first = 0;
  for (int j = 0;; ++j) {
    const double norm = RowNorm(n, x, stride);
    if (std::isnan(norm)) return norm;
    if (norm == 0.0) {
      // A power of n at least is 0 of a nilpotent matrix only, and of that always; a later one has
      // vanished by underflow, and what came before it still stands.
      if (j == 0 || (size_t{1} << std::min(j - 1, 31)) < n) return 0.0;
      log2_rho += std::ldexp(1.0, 1 - j);  // its norm was below 2
      break;
    }
    const int exponent = std::ilogb(norm);
    const double share = std::ldexp(1.0, -j);
    if (j == 0) {
      first = exponent;
    } else {
      log2_rho += exponent * share;
    }
    if (j == kSpectralSquarings) {
      log2_rho += std::log2(std::ldexp(norm, -exponent)) * share;
      break;
    }
    const double scale = std::ldexp(1.0, -exponent);
    Scale<double, false>(n * stride, &scale, x, x);
    Multiply<double, false>(n, x, x, square);
    std::swap(x, square);
  }
  return std::ldexp(std::exp2(log2_rho), first);
}

template <typename T>
HWY_INLINE void Radii(const SpectralRadiusArgs<T>& args, size_t begin, size_t end,
                      double* scratch) {
  const size_t n = args.a.cols, stride = DenseStride<double, false>(n);
  double* x = DenseAligned(scratch);
  for (size_t i = begin; i < end; ++i) {
    for (size_t r = 0; r < n; ++r) {
      std::copy_n(args.a.Row(i * n + r), n, x + r * stride);
      std::fill(x + r * stride + n, x + (r + 1) * stride, 0.0);
    }
    args.rho[i] = static_cast<T>(RadiusOf(n, x, x + n * stride));
  }
}

void RadiiF32(const SpectralRadiusArgs<float>& args, size_t begin, size_t end, double* scratch) {
  Radii(args, begin, end, scratch);
}
void RadiiF64(const SpectralRadiusArgs<double>& args, size_t begin, size_t end, double* scratch) {
  Radii(args, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(RadiiF32);
HWY_EXPORT(RadiiF64);

size_t TaskScratch(size_t n) {
  constexpr size_t kLanes = kDenseMaxBytes / sizeof(double);
  return DenseTaskScratch<double>(2 * n * ((n + kLanes - 1) / kLanes * kLanes));
}

template <typename T>
void Run(core::Exec& exec, const SpectralRadiusArgs<T>& args) {
  const size_t n = args.a.cols;
  if (args.a.rows == 0) return;
  HOGNOSE_DCHECK(n > 0 && args.a.rows == args.rho.size * n);
  HOGNOSE_DCHECK(args.scratch.size >= SpectralRadiusScratch(n, args.rho.size));
  const auto task = [&](size_t begin, size_t end, double* own) {
    if constexpr (sizeof(T) == sizeof(float)) {
      HWY_DYNAMIC_DISPATCH(RadiiF32)(args, begin, end, own);
    } else {
      HWY_DYNAMIC_DISPATCH(RadiiF64)(args, begin, end, own);
    }
  };
  ExpmTasks(n, args.rho.size).Run(exec, args.scratch, TaskScratch(n), task);
}

template <typename T>
void Project(core::Exec& exec, const ProjectSpectralRadiusArgs<T>& args) {
  Run<T>(exec, {.a = args.a, .rho = args.rho, .scratch = args.scratch});
  const size_t n = args.a.cols;
  for (size_t row = 0; row < args.a.rows; ++row) {
    const T rho = args.rho[row / n];
    if (!(rho > args.max_radius)) continue;
    T* a = args.a.Row(row);
    for (size_t j = 0; j < n; ++j) a[j] *= args.max_radius / rho;
  }
}

}  // namespace

size_t SpectralRadiusScratch(size_t n, size_t batch) {
  return ExpmTasks(n, batch).count * TaskScratch(n);
}

void SpectralRadius(core::Exec& exec, const SpectralRadiusArgs<float>& args) noexcept {
  Run(exec, args);
}
void SpectralRadius(core::Exec& exec, const SpectralRadiusArgs<double>& args) noexcept {
  Run(exec, args);
}
void ProjectSpectralRadius(core::Exec& exec,
                           const ProjectSpectralRadiusArgs<float>& args) noexcept {
  Project(exec, args);
}
void ProjectSpectralRadius(core::Exec& exec,
                           const ProjectSpectralRadiusArgs<double>& args) noexcept {
  Project(exec, args);
}

double LeastALog(double max_radius, double dt_low) {
  return std::log(-std::log(max_radius) / dt_low);
}

void ProjectALog(core::Vec<float> a_log, double least) noexcept {
  const float bound =
      std::nextafter(static_cast<float>(least), std::numeric_limits<float>::infinity());
  for (float& v : a_log.span()) v = std::max(v, bound);
}

}  // namespace hognose::kernels
#endif
