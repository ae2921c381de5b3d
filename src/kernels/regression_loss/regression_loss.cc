#include "kernels/regression_loss/regression_loss.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/regression_loss/regression_loss.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The loss of as many outputs as `d` has lanes, from column i of a row on; their gradient is
// written.
template <class D>
HWY_INLINE hn::Vec<D> LossAt(D d, const RegressionLossArgs& a, size_t row, size_t i) {
  const hn::Rebind<float, D> df;
  const auto load = [&](const auto& m)
                        HWY_ATTR { return hn::PromoteTo(d, hn::LoadU(df, m.Row(row) + i)); };
  const auto r = hn::Sub(load(a.predictions), load(a.targets));
  const bool huber = a.kind == RegressionLossKind::kHuber;
  auto slope = r;
  if (huber) {
    const auto delta = hn::Set(d, static_cast<double>(a.delta));
    slope = hn::Max(hn::Neg(delta), hn::Min(delta, r));
  }
  const double factor = (huber ? 1.0 : 2.0) * a.scale;
  if (a.gradient.rows != 0) {
    const auto gradient = hn::Mul(slope, hn::Set(d, factor));
    hn::StoreU(hn::DemoteTo(df, gradient), df, a.gradient.Row(row) + i);
  }
  if (!huber) return hn::Mul(r, r);
  // r^2 / 2 inside, delta (|r| - delta / 2) outside, where the signs of slope and r cancel.
  return hn::Mul(slope, hn::NegMulAdd(slope, hn::Set(d, 0.5), r));
}

void LossOfRows(const RegressionLossArgs& a, size_t begin, size_t end) {
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  const size_t lanes = hn::Lanes(d), outputs = a.predictions.cols;
  for (size_t row = begin; row < end; ++row) {
    auto sum = hn::Zero(d);
    size_t i = 0;
    for (; i + lanes <= outputs; i += lanes) sum = hn::Add(sum, LossAt(d, a, row, i));
    double total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < outputs; ++i) total += hn::GetLane(LossAt(one, a, row, i));
    a.losses[row] = total;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(LossOfRows);

void RegressionLoss(core::Exec& exec, const RegressionLossArgs& args) noexcept {
  const size_t rows = args.predictions.rows, outputs = args.predictions.cols;
  if (rows == 0) return;
  HOGNOSE_DCHECK(args.targets.rows == rows && args.targets.cols == outputs);
  HOGNOSE_DCHECK(args.gradient.rows == 0 ||
                 (args.gradient.rows == rows && args.gradient.cols == outputs));
  HOGNOSE_DCHECK(args.losses.size == rows && args.delta > 0.0f);
  const size_t per_task = std::max<size_t>(1, 8192 / std::max<size_t>(1, outputs));
  exec.pool.Run((rows + per_task - 1) / per_task, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(LossOfRows)
    (args, task * per_task, std::min(rows, (task + 1) * per_task));
  });
}

void RegressionLossRef(const RegressionLossArgs& a) {
  for (size_t l = 0; l < a.predictions.rows; ++l) {
    double total = 0.0;
    for (size_t o = 0; o < a.predictions.cols; ++o) {
      const double r = static_cast<double>(a.predictions.Row(l)[o]) - a.targets.Row(l)[o];
      const double delta = a.delta;
      double loss = r * r, slope = 2.0 * r;
      if (a.kind == RegressionLossKind::kHuber) {
        const bool inside = std::abs(r) <= delta;
        loss = inside ? 0.5 * r * r : delta * (std::abs(r) - 0.5 * delta);
        slope = inside ? r : std::copysign(delta, r);
      }
      total += loss;
      if (a.gradient.rows != 0) a.gradient.Row(l)[o] = static_cast<float>(a.scale * slope);
    }
    a.losses.data[l] = total;
  }
}

}  // namespace hognose::kernels
#endif
