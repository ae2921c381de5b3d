#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

float MaxOf(const float* x, size_t size) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF max = hn::Set(d, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) max = hn::Max(max, hn::LoadU(d, x + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, max));
  for (; i < size; ++i) result = std::max(result, x[i]);
  return result;
}

// sum of exp(x - max); with `keep` x becomes exp(x - max).
double SumOfExp(float* x, size_t size, float max, bool keep) {
  // Short enough that a lane's sum in f32 is good, long enough that adding the lanes is cheap.
  constexpr size_t kBlock = 256;
  const DF d;
  double total = 0.0;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    VF sum = hn::Zero(d);
    ForVectors(std::min(kBlock, size - begin), [&](size_t i, size_t count) HWY_ATTR {
      float* at = x + begin + i;
      VF e = Exp(d, hn::Sub(LoadN(d, at, count), hn::Set(d, max)));
      if (keep) StoreN(d, e, at, count);
      if (count != hn::Lanes(d)) e = hn::IfThenElseZero(hn::FirstN(d, count), e);
      sum = hn::Add(sum, e);
    });
    total += SumLanes(d, sum);
  }
  return total;
}

void LossOfRow(const CrossEntropyArgs& a, size_t row) {
  const size_t valid = a.valid == 0 ? a.logits.cols : a.valid;
  float* x = a.logits.Row(row);
  const int32_t target = a.targets[row];
  if (target == kIgnored) {
    a.losses[row] = 0.0;
    if (a.gradient) std::fill(x, x + a.logits.cols, 0.0f);
    return;
  }
  HOGNOSE_DCHECK(target >= 0 && static_cast<size_t>(target) < valid);
  const float max = MaxOf(x, valid);
  const double logit = x[target];
  const double sum = SumOfExp(x, valid, max, a.gradient);
  a.losses[row] = std::log(sum) + (max - logit);
  if (!a.gradient) return;
  const float at_target = static_cast<float>(a.scale * (x[target] / sum - 1.0));
  const DF d;
  const VF factor = hn::Set(d, static_cast<float>(a.scale / sum));
  ForVectors(valid, [&](size_t i, size_t count) HWY_ATTR {
    StoreN(d, hn::Mul(LoadN(d, x + i, count), factor), x + i, count);
  });
  x[target] = at_target;
  std::fill(x + valid, x + a.logits.cols, 0.0f);
}

void LossOfRows(const CrossEntropyArgs& a, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) LossOfRow(a, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(LossOfRows);

void CrossEntropy(core::Exec& exec, const CrossEntropyArgs& args) noexcept {
  const size_t rows = args.logits.rows, cols = args.logits.cols;
  if (rows == 0) return;
  HOGNOSE_DCHECK(args.valid <= cols && cols > 0);
  HOGNOSE_DCHECK(args.targets.size() == rows && args.losses.size == rows);
  const size_t per_task = std::max<size_t>(1, 8192 / cols);
  exec.pool.Run((rows + per_task - 1) / per_task, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(LossOfRows)
    (args, task * per_task, std::min(rows, (task + 1) * per_task));
  });
}

void CrossEntropyRef(const CrossEntropyArgs& a) {
  const size_t valid = a.valid == 0 ? a.logits.cols : a.valid;
  for (size_t l = 0; l < a.logits.rows; ++l) {
    float* x = a.logits.Row(l);
    const int32_t target = a.targets[l];
    const double max = *std::max_element(x, x + valid);
    double sum = 0.0;
    for (size_t v = 0; v < valid; ++v) sum += std::exp(x[v] - max);
    a.losses.data[l] = target == kIgnored ? 0.0 : std::log(sum) + max - x[target];
    if (!a.gradient) continue;
    for (size_t v = 0; v < a.logits.cols; ++v) {
      const double p = v < valid ? std::exp(x[v] - max) / sum : 0.0;
      const double one = static_cast<int32_t>(v) == target ? 1.0 : 0.0;
      x[v] = target == kIgnored ? 0.0f : static_cast<float>(a.scale * (p - one));
    }
  }
}

}  // namespace hognose::kernels
#endif
