#include "kernels/ssd_scan/ssd_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ssd_scan/ssd_scan.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_SSD_SCAN_ONCE_
#define HOGNOSE_SSD_SCAN_ONCE_
// Columns of P in one task: with 128 states 16 KiB, so that a task's state stays in the first-level
// cache while time passes.
constexpr size_t kBlockP = 32;
// A single step reads and writes its state once: longer runs of memory are better then.
constexpr size_t kBlockStep = 64;
inline size_t BlockColumns(const SsdScanArgs& a) { return a.x.rows == 1 ? kBlockStep : kBlockP; }
// States up to which a task copies its part of the state to the stack.
constexpr size_t kMaxLocalStates = 256;
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// dt and decay of rows [begin, end), all heads.
void Discretise(const SsdScanArgs& a, size_t begin, size_t end) {
  const DF d;
  const size_t heads = a.a.size;
  for (size_t t = begin; t < end; ++t) {
    float* out = a.scratch.Row(t);
    ForVectors(heads, [&](size_t h, size_t count) HWY_ATTR {
      const VF raw = hn::Add(LoadN(d, a.dt.Row(t) + h, count), LoadN(d, a.dt_bias.data + h, count));
      const VF dt = hn::Min(hn::Max(Softplus(d, raw), hn::Set(d, a.dt_min)), hn::Set(d, a.dt_max));
      const VF decay = ExpNonPositive(d, hn::Mul(dt, LoadN(d, a.a.data + h, count)));
      StoreN(d, dt, out + h, count);
      StoreN(d, decay, out + heads + h, count);
    });
  }
}

// All times of head h, columns [p, p + kVecs vectors), or `count` columns when kVecs is 1.
// state: row n at state + n * stride.
template <size_t kVecs>
void ScanColumns(const SsdScanArgs& a, size_t h, size_t p, size_t count, float* state,
                 size_t stride) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t heads = a.a.size;
  const size_t states = a.b.cols / a.groups;
  const size_t group = h / (heads / a.groups);
  const size_t column = h * (a.x.cols / heads) + p;
  const auto load = [&](const float* from) HWY_ATTR {
    return kVecs == 1 ? LoadN(d, from, count) : hn::LoadU(d, from);
  };
  const auto store = [&](VF v, float* to) HWY_ATTR {
    if (kVecs == 1) {
      StoreN(d, v, to, count);
    } else {
      hn::StoreU(v, d, to);
    }
  };
  for (size_t t = 0; t < a.x.rows; ++t) {
    const float* b = a.b.Row(t) + group * states;
    const float* c = a.c.Row(t) + group * states;
    const VF dt = hn::Set(d, a.scratch.Row(t)[h]);
    const VF decay = hn::Set(d, a.scratch.Row(t)[heads + h]);
    VF dtx[kVecs], y[kVecs];
    for (size_t i = 0; i < kVecs; ++i) {
      dtx[i] = hn::Mul(dt, load(a.x.Row(t) + column + i * lanes));
      y[i] = hn::Zero(d);
    }
    for (size_t n = 0; n < states; ++n) {
      const VF bn = hn::Set(d, b[n]);
      const VF cn = hn::Set(d, c[n]);
      for (size_t i = 0; i < kVecs; ++i) {
        float* s = state + n * stride + i * lanes;
        const VF next = hn::MulAdd(decay, load(s), hn::Mul(bn, dtx[i]));
        store(next, s);
        y[i] = hn::MulAdd(cn, next, y[i]);
      }
    }
    for (size_t i = 0; i < kVecs; ++i) {
      const VF x = load(a.x.Row(t) + column + i * lanes);
      const VF skip = load(a.d_skip.data + column + i * lanes);
      store(hn::MulAdd(skip, x, y[i]), a.y.Row(t) + column + i * lanes);
    }
  }
}

// All times of kBlockP columns of head h from `begin` on, with a copy of their state.
void ScanLocally(const SsdScanArgs& a, size_t h, size_t begin, float* state) {
  constexpr size_t kVecs = kBlockP / hn::MaxLanes(DF());
  const size_t states = a.b.cols / a.groups;
  if (states > kMaxLocalStates) {
    return ScanColumns<kVecs>(a, h, begin, kBlockP, state, a.state.stride);
  }
  HWY_ALIGN float local[kMaxLocalStates * kBlockP];
  for (size_t n = 0; n < states; ++n) {
    std::copy_n(state + n * a.state.stride, kBlockP, local + n * kBlockP);
  }
  ScanColumns<kVecs>(a, h, begin, kBlockP, local, kBlockP);
  for (size_t n = 0; n < states; ++n) {
    std::copy_n(local + n * kBlockP, kBlockP, state + n * a.state.stride);
  }
}

// Block `block` of the columns of head h.
void ScanBlock(const SsdScanArgs& a, size_t h, size_t block) {
  const size_t begin = block * BlockColumns(a);
  const size_t columns = std::min(BlockColumns(a), a.state.cols - begin);
  float* state = a.state.Row(h * (a.b.cols / a.groups)) + begin;
  if (columns == kBlockStep) {
    constexpr size_t kVecs = kBlockStep / hn::MaxLanes(DF());
    return ScanColumns<kVecs>(a, h, begin, columns, state, a.state.stride);
  }
  if (columns == kBlockP && a.x.rows > 1) return ScanLocally(a, h, begin, state);
  ForVectors(columns, [&](size_t i, size_t count) HWY_ATTR {
    ScanColumns<1>(a, h, begin + i, count, state + i, a.state.stride);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(Discretise);
HWY_EXPORT(ScanBlock);

void SsdScan(core::Exec& exec, const SsdScanArgs& args) noexcept {
  const size_t heads = args.a.size;
  HOGNOSE_DCHECK(heads % args.groups == 0 && args.b.cols % args.groups == 0);
  HOGNOSE_DCHECK(args.x.cols == heads * args.state.cols && args.dt.cols == heads);
  HOGNOSE_DCHECK(args.state.rows == heads * (args.b.cols / args.groups));
  HOGNOSE_DCHECK(args.d_skip.size == args.x.cols && args.scratch.cols == 2 * heads);
  constexpr size_t kRowsPerTask = 16;
  exec.pool.Run((args.x.rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(Discretise)
    (args, task * kRowsPerTask, std::min(args.x.rows, (task + 1) * kRowsPerTask));
  });
  const size_t columns = BlockColumns(args);
  const size_t blocks = (args.state.cols + columns - 1) / columns;
  exec.pool.Run(heads * blocks, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(ScanBlock)(args, task / blocks, task % blocks);
  });
}

void SsdScanRef(const SsdScanArgs& a) {
  const size_t heads = a.a.size, width = a.state.cols, states = a.b.cols / a.groups;
  std::vector<double> s(a.state.rows * width);
  for (size_t i = 0; i < s.size(); ++i) s[i] = a.state.Row(i / width)[i % width];
  for (size_t t = 0; t < a.x.rows; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const double raw = static_cast<double>(a.dt.Row(t)[h]) + a.dt_bias.data[h];
      double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      dt = std::min(std::max(dt, static_cast<double>(a.dt_min)), static_cast<double>(a.dt_max));
      const double decay = std::exp(dt * a.a.data[h]);
      const size_t group = h / (heads / a.groups);
      for (size_t p = 0; p < width; ++p) {
        const double x = a.x.Row(t)[h * width + p];
        double y = a.d_skip.data[h * width + p] * x;
        for (size_t n = 0; n < states; ++n) {
          double& v = s[(h * states + n) * width + p];
          v = decay * v + dt * x * a.b.Row(t)[group * states + n];
          y += v * a.c.Row(t)[group * states + n];
        }
        a.y.Row(t)[h * width + p] = static_cast<float>(y);
      }
    }
  }
  for (size_t i = 0; i < s.size(); ++i) {
    a.state.Row(i / width)[i % width] = static_cast<float>(s[i]);
  }
}

}  // namespace hognose::kernels
#endif
