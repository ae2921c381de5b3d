#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/scan/scan_piece.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/scan/scan_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// `size` contiguous elements each, h the state before x. out = g h.
void Product(const float* g, const float* h, const float*, float* out, size_t size) {
  const DF d;
  ForVectors(size, [&](size_t i, size_t count) HWY_ATTR {
    StoreN(d, hn::Mul(LoadN(d, g + i, count), LoadN(d, h + i, count)), out + i, count);
  });
}

// True where x doesn't set the maximum.
HWY_INLINE hn::Mask<DF> Keeps(VF h, VF x) {
  return hn::Or(hn::Ge(h, x), hn::Not(hn::Eq(h, h)));  // Ne is false for a NaN on some targets
}

// out = 0 where x sets the maximum, else 1.
void KeepFactor(const float*, const float* h, const float* x, float* out, size_t size) {
  const DF d;
  ForVectors(size, [&](size_t i, size_t count) HWY_ATTR {
    const auto keeps = Keeps(LoadN(d, h + i, count), LoadN(d, x + i, count));
    StoreN(d, hn::IfThenElseZero(keeps, hn::Set(d, 1.0f)), out + i, count);
  });
}

// out = g where x sets the maximum, else 0.
void GradOfMax(const float* g, const float* h, const float* x, float* out, size_t size) {
  const DF d;
  ForVectors(size, [&](size_t i, size_t count) HWY_ATTR {
    const auto keeps = Keeps(LoadN(d, h + i, count), LoadN(d, x + i, count));
    StoreN(d, hn::IfThenZeroElse(keeps, LoadN(d, g + i, count)), out + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(Product);
HWY_EXPORT(KeepFactor);
HWY_EXPORT(GradOfMax);

using Rule = void (*)(const float*, const float*, const float*, float*, size_t);

struct ElementArgs {
  Series<const float> g = {};
  Series<const float> h = {};
  Series<const float> x = {};
  Series<float> out = {};
};

template <typename T>
Series<T> AsSeries(core::Mat<T> m) {
  return {m.data, m.rows, 1, m.cols, m.stride, m.cols};
}

// `rule` for all elements; operands that it does not read may be empty.
void ForElements(core::Exec& exec, const ElementArgs& e, Rule rule) {
  constexpr size_t kElementsPerTask = 16384;
  const size_t channels = e.out.channels, steps = e.out.steps;
  const size_t per_task = std::max<size_t>(1, kElementsPerTask / channels);
  const size_t parts = (steps + per_task - 1) / per_task;
  const auto dense = [&](const auto& s) { return s.steps == 0 || s.step_stride == channels; };
  const bool at_once = dense(e.g) && dense(e.h) && dense(e.x) && dense(e.out);
  exec.pool.Run(e.out.sequences * parts, [&](size_t task) {
    const size_t b = task / parts, begin = task % parts * per_task;
    const size_t end = std::min(steps, begin + per_task);
    const size_t rows = at_once ? end - begin : 1;
    const auto at = [&](const auto& s, size_t t) { return s.steps == 0 ? nullptr : s.At(b, t); };
    for (size_t t = begin; t < end; t += rows) {
      rule(at(e.g, t), at(e.h, t), at(e.x, t), at(e.out, t), rows * channels);
    }
  });
}

// Parts of a series in the order of the forward scan.
struct Order {
  bool reverse;
  size_t steps;

  size_t first() const { return reverse ? steps - 1 : 0; }
  size_t last() const { return reverse ? 0 : steps - 1; }
  // All steps but the last; but the first. Of an empty series: empty.
  template <typename T>
  Series<T> Earlier(const Series<T>& s) const {
    return s.steps == 0 ? s : s.Steps(reverse ? 1 : 0, steps - 1);
  }
  template <typename T>
  Series<T> Later(const Series<T>& s) const {
    return s.steps == 0 ? s : s.Steps(reverse ? 0 : 1, steps - 1);
  }
};

// The gradients g by the states, in dx. The last one is known; the others are a scan.
void GradOfStates(core::Exec& exec, const ScanGradArgs& args, const Order& order) {
  const size_t channels = args.dx.channels;
  for (size_t b = 0; b < args.dx.sequences; ++b) {
    float* g = args.dx.At(b, order.last());
    const float* dy = args.dy.At(b, order.last());
    const float* dlast = args.dlast.rows == 0 ? nullptr : args.dlast.Row(b);
    for (size_t c = 0; c < channels; ++c) {
      g[c] = (args.exclusive ? 0.0f : dy[c]) + (dlast == nullptr ? 0.0f : dlast[c]);
    }
  }
  if (order.steps == 1) return;
  const Series<float> g = order.Earlier(args.dx);
  ScanArgs scan;
  scan.op = args.op == ScanOp::kSum ? ScanOp::kSum : ScanOp::kLinear;
  scan.reverse = !args.reverse;
  scan.method = args.method;
  scan.x = args.exclusive ? order.Later(args.dy) : order.Earlier(args.dy);
  scan.initial = args.dx.Step(order.last());
  scan.y = g;
  scan.scratch = args.scratch;
  if (args.op == ScanOp::kLinear) scan.a = order.Later(args.a);
  if (args.op == ScanOp::kProduct) scan.a = order.Later(args.x);
  if (args.op == ScanOp::kMax) {
    const auto h = args.exclusive ? order.Later(args.y) : order.Earlier(args.y);
    ForElements(exec, {.h = h, .x = order.Later(args.x), .out = g},
                HWY_DYNAMIC_DISPATCH(KeepFactor));
    scan.a = g;
  }
  Scan(exec, scan);
}

// Of g at the first step, before dx takes its place.
void GradOfInitial(const ScanGradArgs& args, const Order& order) {
  for (size_t b = 0; b < args.dinitial.rows; ++b) {
    for (size_t c = 0; c < args.dinitial.cols; ++c) {
      const auto value = [&](const auto& s) { return s.At(b, order.first())[c]; };
      float g = value(args.dx);
      if (args.op == ScanOp::kLinear) g *= value(args.a);
      if (args.op == ScanOp::kProduct) g *= value(args.x);
      if (args.op == ScanOp::kMax) {
        const float h = args.initial.rows == 0 ? 0.0f : args.initial.Row(b)[c];
        const bool keeps = h >= value(args.x) || std::isnan(h);
        if (args.initial.rows == 0 || !keeps) g = 0.0f;
      }
      args.dinitial.Row(b)[c] = args.exclusive ? g + value(args.dy) : g;
    }
  }
}

// out = rule(g, the state before the step, x). Without initial state that is 0 for da of the first
// step, and its dx is g.
void FinishSteps(core::Exec& exec, const ScanGradArgs& args, const Order& order, Series<float> out,
                 Rule rule) {
  const Series<const float> g = args.dx;
  if (order.steps > 1) {
    const auto h = args.exclusive ? order.Later(args.y) : order.Earlier(args.y);
    ForElements(exec, {order.Later(g), h, order.Later(args.x), order.Later(out)}, rule);
  }
  const Series<float> first = AsSeries(out.Step(order.first()));
  if (args.initial.rows != 0) {
    const auto x = args.x.steps == 0 ? args.x : AsSeries(args.x.Step(order.first()));
    ForElements(exec, {AsSeries(g.Step(order.first())), AsSeries(args.initial), x, first}, rule);
  } else if (args.op == ScanOp::kLinear) {
    for (size_t b = 0; b < first.sequences; ++b) {
      const float* by_state = g.At(b, order.first());
      for (size_t c = 0; c < first.channels; ++c) first.At(b, 0)[c] = by_state[c] * 0.0f;
    }
  }
}

}  // namespace

size_t ScanGradScratch(const ScanShape& shape, ScanMethod method) noexcept {
  if (shape.steps < 2) return 0;
  const ScanOp op = shape.op == ScanOp::kSum ? ScanOp::kSum : ScanOp::kLinear;
  return ScanScratch({op, shape.sequences, shape.steps - 1, shape.channels}, method);
}

void ScanGrad(core::Exec& exec, const ScanGradArgs& args) noexcept {
  const size_t sequences = args.dx.sequences, steps = args.dx.steps, channels = args.dx.channels;
  const auto shaped = [&](const auto& s) {
    return s.sequences == sequences && s.steps == steps && s.channels == channels;
  };
  const auto states = [&](const auto& m) {
    return m.rows == 0 || (m.rows == sequences && m.cols == channels);
  };
  const bool linear = args.op == ScanOp::kLinear, sum = args.op == ScanOp::kSum;
  const bool wants_y = linear ? args.da.steps != 0 : !sum;
  HOGNOSE_DCHECK(shaped(args.dy) && states(args.initial) && states(args.dlast));
  HOGNOSE_DCHECK(states(args.dinitial) && (!linear || shaped(args.a)));
  HOGNOSE_DCHECK((linear || sum || shaped(args.x)) && (!wants_y || shaped(args.y)));
  HOGNOSE_DCHECK(args.scratch.size >=
                 ScanGradScratch({args.op, sequences, steps, channels}, args.method));
  if (sequences == 0 || channels == 0) return;
  if (steps == 0) {
    for (size_t b = 0; b < args.dinitial.rows; ++b) {
      float* to = args.dinitial.Row(b);
      if (args.dlast.rows == 0) std::fill_n(to, channels, 0.0f);
      if (args.dlast.rows != 0) std::copy_n(args.dlast.Row(b), channels, to);
    }
    return;
  }
  const Order order{args.reverse, steps};
  GradOfStates(exec, args, order);
  GradOfInitial(args, order);
  switch (args.op) {
    case ScanOp::kLinear:
      if (args.da.steps != 0) {
        FinishSteps(exec, args, order, args.da, HWY_DYNAMIC_DISPATCH(Product));
      }
      return;
    case ScanOp::kSum:
      return;
    case ScanOp::kProduct:
      return FinishSteps(exec, args, order, args.dx, HWY_DYNAMIC_DISPATCH(Product));
    case ScanOp::kMax:
      return FinishSteps(exec, args, order, args.dx, HWY_DYNAMIC_DISPATCH(GradOfMax));
  }
}

namespace {

// One channel of one sequence in the order of the scan; h[p] is the state before step p.
void ChannelGradRef(const ScanGradArgs& a, size_t b, size_t c) {
  const size_t steps = a.dx.steps;
  const auto at = [&](const auto& s, size_t p) -> auto& {
    return s.At(b, a.reverse ? steps - 1 - p : p)[c];
  };
  std::vector<double> h = {a.initial.rows != 0 ? a.initial.Row(b)[c] : internal::Identity(a.op)};
  std::vector<bool> sets(steps, false);
  for (size_t p = 0; p < steps; ++p) {
    const double x = a.x.steps == 0 ? 0.0 : at(a.x, p), before = h.back();
    if (a.op == ScanOp::kLinear) h.push_back(at(a.a, p) * before + x);
    if (a.op == ScanOp::kSum) h.push_back(before + x);
    if (a.op == ScanOp::kProduct) h.push_back(before * x);
    if (a.op != ScanOp::kMax) continue;
    sets[p] =
        (p == 0 && a.initial.rows == 0) || (!std::isnan(before) && (std::isnan(x) || x > before));
    h.push_back(sets[p] ? x : before);
  }
  double g = a.dlast.rows == 0 ? 0.0 : a.dlast.Row(b)[c];
  for (size_t p = steps; p-- > 0;) {
    if (!a.exclusive) g += at(a.dy, p);
    const bool takes = a.op != ScanOp::kMax || sets[p];
    at(a.dx, p) = static_cast<float>(a.op == ScanOp::kProduct ? g * h[p] : takes ? g : 0.0);
    if (a.da.steps != 0) at(a.da, p) = static_cast<float>(g * h[p]);
    if (a.op == ScanOp::kLinear) g *= at(a.a, p);
    if (a.op == ScanOp::kProduct) g *= at(a.x, p);
    if (a.op == ScanOp::kMax && sets[p]) g = 0.0;
    if (a.exclusive) g += at(a.dy, p);
  }
  if (a.dinitial.rows != 0) a.dinitial.Row(b)[c] = static_cast<float>(g);
}

}  // namespace

void ScanGradRef(const ScanGradArgs& args) {
  for (size_t b = 0; b < args.dx.sequences; ++b) {
    for (size_t c = 0; c < args.dx.channels; ++c) ChannelGradRef(args, b, c);
  }
}

}  // namespace hognose::kernels
#endif
