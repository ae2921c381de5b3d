#include "kernels/rms_norm/rms_norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// One group of one row: columns [begin, begin + group).
void NormGroup(const RmsNormArgs& a, size_t row, size_t begin) {
  const DF d;
  const float* x = a.x.Row(row) + begin;
  const float* z = a.gate == Gate::kNone ? nullptr : a.z.Row(row) + begin;
  float* y = a.y.Row(row) + begin;
  const bool before = a.gate == Gate::kBeforeNorm;
  const auto gated = [&](size_t i, size_t count) HWY_ATTR {
    const VF v = LoadN(d, x + i, count);
    return before ? hn::Mul(v, Silu(d, LoadN(d, z + i, count))) : v;
  };
  VF scale = hn::Set(d, 1.0f);
  if (a.normalize) {
    VF sum = hn::Zero(d);
    ForVectors(a.group, [&](size_t i, size_t count) HWY_ATTR {
      const VF u = gated(i, count);
      sum = hn::MulAdd(u, u, sum);
      if (before) StoreN(d, u, y + i, count);  // so that the second pass needs no exp
    });
    const float mean = SumLanes(d, sum) / static_cast<float>(a.group);
    scale = hn::Set(d, 1.0f / std::sqrt(mean + a.eps));
  }
  ForVectors(a.group, [&](size_t i, size_t count) HWY_ATTR {
    VF v = hn::Mul(a.normalize && before ? LoadN(d, y + i, count) : gated(i, count), scale);
    if (a.w.size != 0) v = hn::Mul(v, LoadN(d, a.w.data + begin + i, count));
    if (a.gate == Gate::kAfterNorm) v = hn::Mul(v, Silu(d, LoadN(d, z + i, count)));
    StoreN(d, v, y + i, count);
  });
}

void NormRows(const RmsNormArgs& a, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    for (size_t g = 0; g < a.x.cols; g += a.group) NormGroup(a, row, g);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(NormRows);

void RmsNorm(core::Exec& exec, const RmsNormArgs& args) noexcept {
  HOGNOSE_DCHECK(args.group > 0 && args.x.cols % args.group == 0);
  HOGNOSE_DCHECK(args.w.size == 0 || args.w.size == args.x.cols);
  HOGNOSE_DCHECK(args.normalize || args.gate == Gate::kBeforeNorm);
  constexpr size_t kRowsPerTask = 8;
  exec.pool.Run((args.x.rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(NormRows)
    (args, task * kRowsPerTask, std::min(args.x.rows, (task + 1) * kRowsPerTask));
  });
}

void RmsNormRef(const RmsNormArgs& a) {
  const auto silu = [](double v) { return v / (1.0 + std::exp(-v)); };
  for (size_t l = 0; l < a.x.rows; ++l) {
    for (size_t g = 0; g < a.x.cols; g += a.group) {
      const auto u = [&](size_t i) -> double {
        return a.gate == Gate::kBeforeNorm ? a.x.Row(l)[i] * silu(a.z.Row(l)[i]) : a.x.Row(l)[i];
      };
      double sum = 0.0;
      for (size_t i = g; i < g + a.group; ++i) sum += u(i) * u(i);
      const double rho =
          a.normalize ? 1.0 / std::sqrt(sum / static_cast<double>(a.group) + a.eps) : 1.0;
      for (size_t i = g; i < g + a.group; ++i) {
        double y = u(i) * rho;
        if (a.w.size != 0) y *= a.w.data[i];
        if (a.gate == Gate::kAfterNorm) y *= silu(a.z.Row(l)[i]);
        a.y.Row(l)[i] = static_cast<float>(y);
      }
    }
  }
}

}  // namespace hognose::kernels
#endif
