#include "kernels/selective_scan/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selective_scan/selective_scan.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// States that are kept near while time passes. Rows of a [N, E] matrix lie far apart and would
// evict each other from a set-associative cache.
constexpr size_t kStates = 32;
constexpr float kLog2E = 1.44269504088896341f;

// One vector of channels from `e` on (`count` of them), states [n0, n0 + states), all times. The
// first block of states starts the sum over n in y, the last one finishes y.
void ScanStates(const SelectiveScanArgs& a, size_t e, size_t count, size_t n0, size_t states) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float h[kStates * HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float decay_rate[kStates * HWY_MAX_BYTES / sizeof(float)];
  for (size_t n = 0; n < states; ++n) {
    hn::Store(LoadN(d, a.state.Row(n0 + n) + e, count), d, h + n * lanes);
    const VF rate = hn::Mul(LoadN(d, a.a.Row(n0 + n) + e, count), hn::Set(d, kLog2E));
    hn::Store(rate, d, decay_rate + n * lanes);
  }
  const bool last = n0 + states == a.b.cols;
  const VF skip = LoadN(d, a.d_skip.data + e, count);
  for (size_t t = 0; t < a.x.rows; ++t) {
    const VF dt = Softplus(d, LoadN(d, a.dt.Row(t) + e, count));
    const VF x = LoadN(d, a.x.Row(t) + e, count);
    const VF dtx = hn::Mul(dt, x);
    const float* b = a.b.Row(t) + n0;
    const float* c = a.c.Row(t) + n0;
    VF y = n0 == 0 ? hn::Zero(d) : LoadN(d, a.y.Row(t) + e, count);
    for (size_t n = 0; n < states; ++n) {
      const VF decay = Exp2NonPositive(d, hn::Mul(dt, hn::Load(d, decay_rate + n * lanes)));
      const VF state =
          hn::MulAdd(decay, hn::Load(d, h + n * lanes), hn::Mul(dtx, hn::Set(d, b[n])));
      hn::Store(state, d, h + n * lanes);
      y = hn::MulAdd(hn::Set(d, c[n]), state, y);
    }
    if (last) {
      y = hn::Mul(hn::MulAdd(skip, x, y), Silu(d, LoadN(d, a.z.Row(t) + e, count)));
    }
    StoreN(d, y, a.y.Row(t) + e, count);
  }
  for (size_t n = 0; n < states; ++n) {
    StoreN(d, hn::Load(d, h + n * lanes), a.state.Row(n0 + n) + e, count);
  }
}

void ScanChannels(const SelectiveScanArgs& a, size_t begin, size_t end) {
  ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
    for (size_t n0 = 0; n0 < a.b.cols; n0 += kStates) {
      ScanStates(a, begin + i, count, n0, std::min(kStates, a.b.cols - n0));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(ScanChannels);

void SelectiveScan(core::Exec& exec, const SelectiveScanArgs& args) noexcept {
  HOGNOSE_DCHECK(args.a.rows == args.b.cols && args.b.cols == args.c.cols);
  HOGNOSE_DCHECK(args.state.rows == args.a.rows && args.state.cols == args.x.cols);
  HOGNOSE_DCHECK(args.dt.cols == args.x.cols && args.z.cols == args.x.cols);
  constexpr size_t kChannelsPerTask = 128;
  exec.pool.Run((args.x.cols + kChannelsPerTask - 1) / kChannelsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(ScanChannels)
    (args, task * kChannelsPerTask, std::min(args.x.cols, (task + 1) * kChannelsPerTask));
  });
}

void SelectiveScanRef(const SelectiveScanArgs& a) {
  for (size_t e = 0; e < a.x.cols; ++e) {
    std::vector<double> h;
    for (size_t n = 0; n < a.b.cols; ++n) h.push_back(a.state.Row(n)[e]);
    for (size_t t = 0; t < a.x.rows; ++t) {
      const double raw = a.dt.Row(t)[e], x = a.x.Row(t)[e], z = a.z.Row(t)[e];
      const double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      double y = a.d_skip.data[e] * x;
      for (size_t n = 0; n < h.size(); ++n) {
        h[n] = std::exp(dt * a.a.Row(n)[e]) * h[n] + dt * x * a.b.Row(t)[n];
        y += a.c.Row(t)[n] * h[n];
      }
      a.y.Row(t)[e] = static_cast<float>(y * z / (1.0 + std::exp(-z)));
    }
    for (size_t n = 0; n < h.size(); ++n) a.state.Row(n)[e] = static_cast<float>(h[n]);
  }
}

void SelectiveScanGradRef(const SelectiveScanGradArgs& a) {
  const size_t steps = a.x.rows, states = a.b.cols;
  std::vector<double> db(steps * states), dc(steps * states);
  for (size_t e = 0; e < a.x.cols; ++e) {
    std::vector<double> h, g, da(states);  // h [L + 1, N]
    for (size_t n = 0; n < states; ++n) h.push_back(a.state.Row(n)[e]);
    for (size_t n = 0; n < states; ++n) g.push_back(a.dstate.Row(n)[e]);
    const auto delta = [&](size_t t) {
      const double raw = a.dt.Row(t)[e];
      return raw > 20.0 ? raw : std::log1p(std::exp(raw));
    };
    for (size_t t = 0; t < steps; ++t) {
      const double dt = delta(t), dtx = dt * a.x.Row(t)[e];
      for (size_t n = 0; n < states; ++n) {
        h.push_back(std::exp(dt * a.a.Row(n)[e]) * h[t * states + n] + dtx * a.b.Row(t)[n]);
      }
    }
    double dskip = 0.0;
    for (size_t t = steps; t-- > 0;) {
      const double raw = a.dt.Row(t)[e], dt = delta(t), x = a.x.Row(t)[e], z = a.z.Row(t)[e];
      const double sigmoid = 1.0 / (1.0 + std::exp(-z)), skip = a.d_skip.data[e];
      const double dy = a.dy.Row(t)[e] * z * sigmoid;
      double y = skip * x, s = 0.0, w = 0.0;
      for (size_t n = 0; n < states; ++n) {
        const double rate = a.a.Row(n)[e], decay = std::exp(dt * rate);
        const double now = h[(t + 1) * states + n], before = h[t * states + n];
        g[n] += dy * a.c.Row(t)[n];
        y += a.c.Row(t)[n] * now;
        s += g[n] * a.b.Row(t)[n];
        w += g[n] * rate * decay * before;
        dc[t * states + n] += dy * now;
        db[t * states + n] += g[n] * dt * x;
        da[n] += g[n] * dt * decay * before;
        g[n] *= decay;
      }
      dskip += dy * x;
      a.dx.Row(t)[e] = static_cast<float>(skip * dy + dt * s);
      a.ddt.Row(t)[e] =
          static_cast<float>((x * s + w) * (raw > 20.0 ? 1.0 : 1.0 / (1.0 + std::exp(-raw))));
      const double slope = sigmoid * (1.0 + z * (1.0 - sigmoid));
      a.dz.Row(t)[e] = static_cast<float>(a.dy.Row(t)[e] * slope * y);
    }
    for (size_t n = 0; n < states; ++n) {
      a.dstate.Row(n)[e] = static_cast<float>(g[n]);
      if (a.da.data != nullptr) a.da.Row(n)[e] = static_cast<float>(a.da.Row(n)[e] + da[n]);
    }
    if (a.dd_skip.data != nullptr) {
      a.dd_skip.data[e] = static_cast<float>(a.dd_skip.data[e] + dskip);
    }
  }
  for (size_t t = 0; t < steps; ++t) {
    for (size_t n = 0; n < states; ++n) {
      a.db.Row(t)[n] = static_cast<float>(db[t * states + n]);
      a.dc.Row(t)[n] = static_cast<float>(dc[t * states + n]);
    }
  }
}

}  // namespace hognose::kernels
#endif
