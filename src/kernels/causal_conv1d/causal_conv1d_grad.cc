#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/causal_conv1d/causal_conv1d.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_conv1d/causal_conv1d_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// In this file rows of the input are counted from the window's first one: [0, K) is the window
// before the pass, [K, K + L) is x. Output row t meets input rows t + 1 .. t + K.

// Channels [begin, end) of a pass. kTaps: their number, or 0 for any; with 4, what all published
// models have, the loops over them unroll.
template <size_t kTaps>
struct ConvGrad {
  const CausalConv1dGradArgs& a;
  size_t begin, end;

  size_t taps() const { return kTaps != 0 ? kTaps : a.w.rows; }
  size_t channels() const { return a.x.cols; }
  // Rows [0, K) of this pass's dw, and row K: of its dbias. They are apart from dw so that a pass's
  // many small terms don't meet what many passes have added up.
  core::Mat<float> Sums() const { return {a.scratch.data, taps() + 1, channels(), channels()}; }
  // A copy of dwindow as it was on entry: it is overwritten before the last rows of dx need it.
  core::Mat<float> After() const {
    return {a.scratch.data + (taps() + 1) * channels(), taps(), channels(), channels()};
  }

  // dp of output row t into dx, and its part of the sums.
  void BackThroughSilu(size_t t) const {
    const DF d;
    const bool want_sums = a.dw.rows != 0 || a.dbias.size != 0;
    const auto input = [&](size_t k) {
      const size_t row = t + 1 + k;
      return row < taps() ? a.window.Row(row) : a.x.Row(row - taps());
    };
    const float* inputs[kTaps + 1] = {};
    for (size_t k = 0; k < kTaps; ++k) inputs[k] = input(k);
    const auto load = [&](size_t k, size_t c, size_t count) HWY_ATTR {
      return LoadN(d, (kTaps != 0 ? inputs[k] : input(k)) + c, count);
    };
    const core::Mat<float> sums = Sums();
    ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
      const size_t c = begin + i;
      VF p = a.bias.size != 0 ? LoadN(d, a.bias.data + c, count) : hn::Zero(d);
      for (size_t k = 0; k < taps(); ++k) {
        p = hn::MulAdd(LoadN(d, a.w.Row(k) + c, count), load(k, c, count), p);
      }
      VF slope;
      SiluAndSlope(d, p, &slope);
      const VF dp = hn::Mul(slope, LoadN(d, a.dy.Row(t) + c, count));
      StoreN(d, dp, a.dx.Row(t) + c, count);
      if (!want_sums) return;
      for (size_t k = 0; k < taps(); ++k) {
        float* sum = sums.Row(k) + c;
        StoreN(d, hn::MulAdd(dp, load(k, c, count), LoadN(d, sum, count)), sum, count);
      }
      float* sum = sums.Row(taps()) + c;
      StoreN(d, hn::Add(dp, LoadN(d, sum, count)), sum, count);
    });
  }

  // The gradient of input row `row`, from dp of the output rows that it met and the gradient of the
  // window after the pass. In dx it takes the place of a dp that no later row needs.
  void BackThroughTaps(size_t row) const {
    const DF d;
    const size_t length = a.x.rows;
    if (row < taps() && a.dwindow.rows == 0) return;
    float* out = row < taps() ? a.dwindow.Row(row) : a.dx.Row(row - taps());
    const float* after = a.dwindow.rows != 0 && row >= length ? After().Row(row - length) : nullptr;
    // Tap k takes this row to output row - 1 - k, which lies in [0, length).
    const size_t first = row > length ? row - length : 0;
    const size_t last = std::min(taps(), row);
    const bool all = first == 0 && last == taps();
    ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
      const size_t c = begin + i;
      VF sum = after != nullptr ? LoadN(d, after + c, count) : hn::Zero(d);
      const auto add = [&](size_t k) HWY_ATTR {
        sum = hn::MulAdd(LoadN(d, a.w.Row(k) + c, count),
                         LoadN(d, a.dx.Row(row - 1 - k) + c, count), sum);
      };
      if (all) {
        for (size_t k = 0; k < taps(); ++k) add(k);
      } else {
        for (size_t k = first; k < last; ++k) add(k);
      }
      StoreN(d, sum, out + c, count);
    });
  }

  void AddSums(size_t k, float* to) const {
    const DF d;
    const float* from = Sums().Row(k);
    ForVectors(end - begin, [&](size_t i, size_t n) HWY_ATTR {
      const size_t c = begin + i;
      StoreN(d, hn::Add(LoadN(d, to + c, n), LoadN(d, from + c, n)), to + c, n);
    });
  }

  void Run() const {
    const core::Mat<float> sums = Sums(), after = After();
    for (size_t k = 0; k <= taps(); ++k) {
      std::fill(sums.Row(k) + begin, sums.Row(k) + end, 0.0f);
    }
    for (size_t k = 0; k < a.dwindow.rows; ++k) {
      std::copy(a.dwindow.Row(k) + begin, a.dwindow.Row(k) + end, after.Row(k) + begin);
    }
    // Input row t + 1 meets output rows up to t: right behind it, while all is in the cache.
    BackThroughTaps(0);
    for (size_t t = 0; t < a.x.rows; ++t) {
      BackThroughSilu(t);
      BackThroughTaps(t + 1);
    }
    for (size_t row = a.x.rows + 1; row < a.x.rows + taps(); ++row) BackThroughTaps(row);
    for (size_t k = 0; k < a.dw.rows; ++k) AddSums(k, a.dw.Row(k));
    if (a.dbias.size != 0) AddSums(taps(), a.dbias.data);
  }
};

void ConvGradChannels(const CausalConv1dGradArgs& a, size_t begin, size_t end) {
  if (a.w.rows == 4) {
    ConvGrad<4>{a, begin, end}.Run();
  } else {
    ConvGrad<0>{a, begin, end}.Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(ConvGradChannels);

size_t CausalConv1dGradScratch(size_t taps, size_t channels) { return (2 * taps + 1) * channels; }

void CausalConv1dGrad(core::Exec& exec, const CausalConv1dGradArgs& args) noexcept {
  const size_t taps = args.w.rows, channels = args.x.cols;
  HOGNOSE_DCHECK(args.w.cols == channels && args.window.cols == channels);
  HOGNOSE_DCHECK(args.window.rows == taps && args.dy.cols == channels);
  HOGNOSE_DCHECK(args.dx.cols == channels && args.dx.rows == args.x.rows);
  HOGNOSE_DCHECK(args.dy.rows == args.x.rows);
  HOGNOSE_DCHECK(args.dw.rows == 0 || (args.dw.rows == taps && args.dw.cols == channels));
  HOGNOSE_DCHECK(args.dbias.size == 0 || args.dbias.size == channels);
  HOGNOSE_DCHECK(args.dwindow.rows == 0 ||
                 (args.dwindow.rows == taps && args.dwindow.cols == channels));
  HOGNOSE_DCHECK(args.scratch.size >= CausalConv1dGradScratch(taps, channels));
  constexpr size_t kChannelsPerTask = 256;
  exec.pool.Run((channels + kChannelsPerTask - 1) / kChannelsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(ConvGradChannels)
    (args, task * kChannelsPerTask, std::min(channels, (task + 1) * kChannelsPerTask));
  });
}

void CausalConv1dGradRef(const CausalConv1dGradArgs& a) {
  const size_t taps = a.w.rows, length = a.x.rows;
  for (size_t c = 0; c < a.x.cols; ++c) {
    std::vector<double> in(taps + length), din(taps + length, 0.0);
    for (size_t k = 0; k < taps; ++k) in[k] = a.window.Row(k)[c];
    for (size_t t = 0; t < length; ++t) in[taps + t] = a.x.Row(t)[c];
    if (a.dwindow.rows != 0) {
      for (size_t k = 0; k < taps; ++k) din[length + k] = a.dwindow.Row(k)[c];
    }
    std::vector<double> dw(taps, 0.0);
    double dbias = 0.0;
    for (size_t t = 0; t < length; ++t) {
      double p = a.bias.size != 0 ? a.bias.data[c] : 0.0;
      for (size_t k = 0; k < taps; ++k) p += a.w.Row(k)[c] * in[t + 1 + k];
      const double s = 1.0 / (1.0 + std::exp(-p));
      const double dp = a.dy.Row(t)[c] * s * (1.0 + p * (1.0 - s));
      dbias += dp;
      for (size_t k = 0; k < taps; ++k) {
        dw[k] += dp * in[t + 1 + k];
        din[t + 1 + k] += dp * a.w.Row(k)[c];
      }
    }
    for (size_t t = 0; t < length; ++t) a.dx.Row(t)[c] = static_cast<float>(din[taps + t]);
    for (size_t k = 0; k < taps; ++k) {
      if (a.dw.rows != 0) a.dw.Row(k)[c] += static_cast<float>(dw[k]);
      if (a.dwindow.rows != 0) a.dwindow.Row(k)[c] = static_cast<float>(din[k]);
    }
    if (a.dbias.size != 0) a.dbias.data[c] += static_cast<float>(dbias);
  }
}

}  // namespace hognose::kernels
#endif
