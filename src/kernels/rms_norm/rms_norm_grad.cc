#include <algorithm>
#include <cmath>

#include "kernels/rms_norm/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// What is constant over a group: dv = rho (g - pull v).
struct GroupScale {
  VF rho, pull;
};

GroupScale ScaleOf(const RmsNormGradArgs& a, size_t row, size_t begin) {
  const DF d;
  const float* x = a.x.Row(row) + begin;
  const float* z = a.gate == Gate::kNone ? nullptr : a.z.Row(row) + begin;
  const float* dy = a.dy.Row(row) + begin;
  VF squares = hn::Zero(d), products = hn::Zero(d);
  ForVectors(a.group, [&](size_t i, size_t count) HWY_ATTR {
    VF v = LoadN(d, x + i, count);
    VF g = LoadN(d, dy + i, count);
    if (a.gate != Gate::kNone) {
      VF& gated = a.gate == Gate::kBeforeNorm ? v : g;
      gated = hn::Mul(gated, Silu(d, LoadN(d, z + i, count)));
    }
    if (a.w.size != 0) g = hn::Mul(g, LoadN(d, a.w.data + begin + i, count));
    squares = hn::MulAdd(v, v, squares);
    products = hn::MulAdd(v, g, products);
  });
  const float size = static_cast<float>(a.group);
  const float rho = 1.0f / std::sqrt(SumLanes(d, squares) / size + a.eps);
  return {hn::Set(d, rho), hn::Set(d, rho * rho * (SumLanes(d, products) / size))};
}

// One group of one row; dw (of the group, or null) is this task's own. An output may be an input:
// all of a vector's elements are read before any is written.
void GradGroup(const RmsNormGradArgs& a, size_t row, size_t begin, float* dw) {
  const DF d;
  const auto at = [&](const auto& m) { return m.rows == 0 ? nullptr : m.Row(row) + begin; };
  const float *x = at(a.x), *dy = at(a.dy), *z = a.gate == Gate::kNone ? nullptr : at(a.z);
  const float* w = a.w.size == 0 ? nullptr : a.w.data + begin;
  float *dx = at(a.dx), *dz = z == nullptr ? nullptr : at(a.dz), *y = at(a.y);
  const bool before = a.gate == Gate::kBeforeNorm;
  const VF one = hn::Set(d, 1.0f);
  const GroupScale scale =
      a.normalize ? ScaleOf(a, row, begin) : GroupScale{.rho = one, .pull = hn::Zero(d)};
  ForVectors(a.group, [&](size_t i, size_t count) HWY_ATTR {
    const VF x_in = LoadN(d, x + i, count), dy_in = LoadN(d, dy + i, count);
    VF silu = one, slope = one;
    if (z != nullptr) silu = SiluAndSlope(d, LoadN(d, z + i, count), &slope);
    const VF v = before ? hn::Mul(x_in, silu) : x_in;
    const VF h = z != nullptr && !before ? hn::Mul(dy_in, silu) : dy_in;
    const VF unit = hn::Mul(v, scale.rho);
    VF g = h, result = unit;
    if (w != nullptr) {
      const VF weight = LoadN(d, w + i, count);
      g = hn::Mul(g, weight);
      result = hn::Mul(result, weight);
    }
    const VF dv = hn::Mul(scale.rho, hn::NegMulAdd(scale.pull, v, g));
    if (dw != nullptr) StoreN(d, hn::MulAdd(h, unit, LoadN(d, dw + i, count)), dw + i, count);
    VF out = before ? hn::Mul(dv, silu) : dv;
    if (a.accumulate_dx) out = hn::Add(out, LoadN(d, dx + i, count));
    StoreN(d, out, dx + i, count);
    if (z != nullptr) {
      const VF dsilu = before ? hn::Mul(dv, x_in) : hn::Mul(dy_in, result);
      StoreN(d, hn::Mul(dsilu, slope), dz + i, count);
      if (!before) result = hn::Mul(result, silu);
    }
    if (y != nullptr) StoreN(d, result, y + i, count);
  });
}

// Rows [begin, end); dw [n] or null is written.
void GradRows(const RmsNormGradArgs& a, size_t begin, size_t end, float* dw) {
  if (dw != nullptr) std::fill(dw, dw + a.x.cols, 0.0f);
  for (size_t row = begin; row < end; ++row) {
    for (size_t g = 0; g < a.x.cols; g += a.group) {
      GradGroup(a, row, g, dw == nullptr ? nullptr : dw + g);
    }
  }
}

// Columns [begin, end) of the tasks' sums are added to dw, in the order of the tasks.
void AddSlots(const RmsNormGradArgs& a, size_t slots, size_t begin, size_t end) {
  const DF d;
  ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
    VF sum = hn::Zero(d);
    for (size_t s = 0; s < slots; ++s) {
      sum = hn::Add(sum, LoadN(d, a.scratch.data + s * a.x.cols + begin + i, count));
    }
    float* dw = a.dw.data + begin + i;
    StoreN(d, hn::Add(LoadN(d, dw, count), sum), dw, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(GradRows);
HWY_EXPORT(AddSlots);

// Enough tasks for many threads, but no more than a few slots of dw.
size_t RowsPerTask(size_t rows) { return std::max<size_t>(8, (rows + 31) / 32); }
size_t Tasks(size_t rows) { return (rows + RowsPerTask(rows) - 1) / RowsPerTask(rows); }

}  // namespace

size_t RmsNormGradScratch(size_t rows, size_t cols) { return Tasks(rows) * cols; }

void RmsNormGrad(core::Exec& exec, const RmsNormGradArgs& args) noexcept {
  const size_t rows = args.x.rows, cols = args.x.cols;
  if (rows == 0) return;
  HOGNOSE_DCHECK(args.group > 0 && cols % args.group == 0);
  HOGNOSE_DCHECK(args.w.size == 0 || args.w.size == cols);
  HOGNOSE_DCHECK(args.normalize || args.gate == Gate::kBeforeNorm);
  HOGNOSE_DCHECK(args.dy.rows == rows && args.dy.cols == cols);
  HOGNOSE_DCHECK(args.dx.rows == rows && args.dx.cols == cols);
  HOGNOSE_DCHECK(args.y.rows == 0 || (args.y.rows == rows && args.y.cols == cols));
  HOGNOSE_DCHECK(args.gate == Gate::kNone || (args.z.rows == rows && args.dz.rows == rows));
  const bool dw = args.dw.size != 0;
  HOGNOSE_DCHECK(!dw || args.dw.size == cols);
  HOGNOSE_DCHECK(!dw || args.scratch.size >= RmsNormGradScratch(rows, cols));
  const size_t per_task = RowsPerTask(rows);
  exec.pool.Run(Tasks(rows), [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(GradRows)
    (args, task * per_task, std::min(rows, (task + 1) * per_task),
     dw ? args.scratch.data + task * cols : nullptr);
  });
  if (!dw) return;
  constexpr size_t kColumnsPerTask = 512;
  exec.pool.Run((cols + kColumnsPerTask - 1) / kColumnsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(AddSlots)
    (args, Tasks(rows), task * kColumnsPerTask, std::min(cols, (task + 1) * kColumnsPerTask));
  });
}

void RmsNormGradRef(const RmsNormGradArgs& a) {
  const size_t n = a.x.cols;
  const auto gate = [&](Gate which, size_t l, size_t i) -> double {
    if (a.gate != which) return 1.0;
    const double z = a.z.Row(l)[i];
    return z / (1.0 + std::exp(-z));
  };
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = i - i % a.group;
    double dw = 0.0;
    for (size_t l = 0; l < a.x.rows; ++l) {
      const auto weight = [&](size_t j) -> double { return a.w.size != 0 ? a.w.data[j] : 1.0; };
      const auto v = [&](size_t j) { return a.x.Row(l)[j] * gate(Gate::kBeforeNorm, l, j); };
      const auto h = [&](size_t j) { return a.dy.Row(l)[j] * gate(Gate::kAfterNorm, l, j); };
      double squares = 0.0, products = 0.0;
      for (size_t j = begin; j < begin + a.group; ++j) {
        squares += v(j) * v(j);
        products += v(j) * weight(j) * h(j);
      }
      const double size = static_cast<double>(a.group);
      const double rho = a.normalize ? 1.0 / std::sqrt(squares / size + a.eps) : 1.0;
      const double pull = a.normalize ? rho * rho * products / size : 0.0;
      const double dv = rho * (weight(i) * h(i) - pull * v(i));
      const double y = v(i) * rho * weight(i);
      dw += h(i) * v(i) * rho;
      const double dx = dv * gate(Gate::kBeforeNorm, l, i);
      a.dx.Row(l)[i] = static_cast<float>((a.accumulate_dx ? a.dx.Row(l)[i] : 0.0) + dx);
      if (a.y.rows != 0) a.y.Row(l)[i] = static_cast<float>(y * gate(Gate::kAfterNorm, l, i));
      if (a.gate == Gate::kNone) continue;
      const double z = a.z.Row(l)[i], s = 1.0 / (1.0 + std::exp(-z));
      const double dsilu = a.gate == Gate::kBeforeNorm ? dv * a.x.Row(l)[i] : a.dy.Row(l)[i] * y;
      a.dz.Row(l)[i] = static_cast<float>(dsilu * s * (1.0 + z * (1.0 - s)));
    }
    if (a.dw.size != 0) a.dw.data[i] += static_cast<float>(dw);
  }
}

}  // namespace hognose::kernels
#endif
