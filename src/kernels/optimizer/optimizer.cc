#include "kernels/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/optimizer.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

void AdamWBlock(const AdamWArgs& a, size_t begin, size_t end) {
  const DF d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
  const double step = static_cast<double>(a.step);
  const VF beta1 = set(a.beta1), beta2 = set(a.beta2);
  const VF rest1 = set(1.0 - a.beta1), rest2 = set(1.0 - a.beta2);
  const VF scale = set(a.gradient_scale), eps = set(a.eps);
  const VF decay = set(1.0 - a.lr * a.weight_decay);
  // lr m / (1 - beta1^step) = rate m;  sqrt(v / (1 - beta2^step)) = factor sqrt(v).
  const VF rate = set(a.lr / (1.0 - std::pow(a.beta1, step)));
  const VF factor = set(1.0 / std::sqrt(1.0 - std::pow(a.beta2, step)));
  ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
    float *p = a.p.data + begin + i, *m = a.m.data + begin + i, *v = a.v.data + begin + i;
    const VF g = hn::Mul(LoadN(d, a.g.data + begin + i, count), scale);
    const VF mean = hn::MulAdd(rest1, g, hn::Mul(LoadN(d, m, count), beta1));
    // (1 - beta2) g first: g^2 alone overflows for a g whose v is still a number.
    const VF square = hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(LoadN(d, v, count), beta2));
    const VF change = hn::Div(hn::Mul(mean, rate), hn::MulAdd(hn::Sqrt(square), factor, eps));
    StoreN(d, hn::MulSub(LoadN(d, p, count), decay, change), p, count);
    StoreN(d, mean, m, count);
    StoreN(d, square, v, count);
  });
}

void SgdBlock(const SgdArgs& a, size_t begin, size_t end) {
  const DF d;
  const VF momentum = hn::Set(d, static_cast<float>(a.momentum));
  const VF scale = hn::Set(d, static_cast<float>(a.gradient_scale));
  const VF rate = hn::Set(d, static_cast<float>(a.lr));
  const VF decay = hn::Set(d, static_cast<float>(1.0 - a.lr * a.weight_decay));
  ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
    VF g = hn::Mul(LoadN(d, a.g.data + begin + i, count), scale);
    if (a.buf.size != 0) {
      float* buf = a.buf.data + begin + i;
      g = hn::MulAdd(LoadN(d, buf, count), momentum, g);
      StoreN(d, g, buf, count);
    }
    float* p = a.p.data + begin + i;
    const VF kept = hn::Mul(LoadN(d, p, count), decay);
    StoreN(d, hn::NegMulAdd(rate, g, kept), p, count);
  });
}

double SquaresBlock(const float* x, size_t size) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const size_t lanes = hn::Lanes(d);
  // Two sums, since an addition takes longer than a load.
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(df, x + i));
    const auto x1 = hn::PromoteTo(d, hn::LoadU(df, x + i + lanes));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < size; ++i) total += static_cast<double>(x[i]) * x[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(AdamWBlock);
HWY_EXPORT(SgdBlock);
HWY_EXPORT(SquaresBlock);

// Elements of one task: long enough that handing it out costs nothing.
constexpr size_t kBlock = size_t{1} << 15;

size_t Blocks(size_t size) { return (size + kBlock - 1) / kBlock; }

}  // namespace

void AdamW(core::Exec& exec, const AdamWArgs& args) noexcept {
  const size_t size = args.p.size;
  HOGNOSE_DCHECK(args.m.size == size && args.v.size == size && args.g.size == size);
  HOGNOSE_DCHECK(args.step >= 1);
  exec.pool.Run(Blocks(size), [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(AdamWBlock)
    (args, task * kBlock, std::min(size, (task + 1) * kBlock));
  });
}

void AdamWRef(const AdamWArgs& a) {
  const double step = static_cast<double>(a.step);
  for (size_t i = 0; i < a.p.size; ++i) {
    const double g = a.gradient_scale * a.g[i];
    const double m = a.beta1 * a.m[i] + (1.0 - a.beta1) * g;
    const double v = a.beta2 * a.v[i] + (1.0 - a.beta2) * g * g;
    const double mean = m / (1.0 - std::pow(a.beta1, step));
    const double root = std::sqrt(v / (1.0 - std::pow(a.beta2, step))) + a.eps;
    a.p[i] = static_cast<float>(a.p[i] * (1.0 - a.lr * a.weight_decay) - a.lr * mean / root);
    a.m[i] = static_cast<float>(m);
    a.v[i] = static_cast<float>(v);
  }
}

void Sgd(core::Exec& exec, const SgdArgs& args) noexcept {
  const size_t size = args.p.size;
  HOGNOSE_DCHECK(args.g.size == size);
  HOGNOSE_DCHECK(args.buf.size == size || (args.buf.size == 0 && args.momentum == 0.0));
  exec.pool.Run(Blocks(size), [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(SgdBlock)
    (args, task * kBlock, std::min(size, (task + 1) * kBlock));
  });
}

void SgdRef(const SgdArgs& a) {
  for (size_t i = 0; i < a.p.size; ++i) {
    double g = a.gradient_scale * a.g[i];
    if (a.buf.size != 0) {
      g += a.momentum * a.buf[i];
      a.buf[i] = static_cast<float>(g);
    }
    a.p[i] = static_cast<float>(a.p[i] * (1.0 - a.lr * a.weight_decay) - a.lr * g);
  }
}

size_t SumOfSquaresScratch(size_t size) { return Blocks(size); }

double SumOfSquares(core::Exec& exec, core::Vec<const float> x,
                    core::Vec<double> scratch) noexcept {
  HOGNOSE_DCHECK(scratch.size >= SumOfSquaresScratch(x.size));
  exec.pool.Run(Blocks(x.size), [&](size_t task) {
    const size_t begin = task * kBlock;
    scratch[task] =
        HWY_DYNAMIC_DISPATCH(SquaresBlock)(x.data + begin, std::min(kBlock, x.size - begin));
  });
  double total = 0.0;
  for (size_t i = 0; i < Blocks(x.size); ++i) total += scratch[i];
  return total;
}

double SumOfSquaresRef(core::Vec<const float> x) {
  double total = 0.0;
  for (size_t i = 0; i < x.size; ++i) total += static_cast<double>(x[i]) * x[i];
  return total;
}

}  // namespace hognose::kernels
#endif
