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

// dp of channels [begin, end) into dx, and its sums into `sums`: rows [0, K) are of dw, row K of
// dbias. They are apart from dw so that one pass's many small terms don't meet what many passes
// have added up.
void BackThroughSilu(const CausalConv1dGradArgs& a, core::Mat<float> sums, size_t begin,
                     size_t end) {
  const DF d;
  const size_t taps = a.w.rows;
  const bool want_sums = a.dw.rows != 0 || a.dbias.size != 0;
  for (size_t k = 0; k <= taps; ++k) {
    std::fill(sums.Row(k) + begin, sums.Row(k) + end, 0.0f);
  }
  for (size_t t = 0; t < a.x.rows; ++t) {
    const auto input = [&](size_t k) {
      const size_t row = t + 1 + k;
      return row < taps ? a.window.Row(row) : a.x.Row(row - taps);
    };
    ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
      const size_t c = begin + i;
      VF p = a.bias.size != 0 ? LoadN(d, a.bias.data + c, count) : hn::Zero(d);
      for (size_t k = 0; k < taps; ++k) {
        p = hn::MulAdd(LoadN(d, a.w.Row(k) + c, count), LoadN(d, input(k) + c, count), p);
      }
      VF slope;
      SiluAndSlope(d, p, &slope);
      const VF dp = hn::Mul(slope, LoadN(d, a.dy.Row(t) + c, count));
      StoreN(d, dp, a.dx.Row(t) + c, count);
      if (!want_sums) return;
      for (size_t k = 0; k < taps; ++k) {
        float* sum = sums.Row(k) + c;
        StoreN(d, hn::MulAdd(dp, LoadN(d, input(k) + c, count), LoadN(d, sum, count)), sum, count);
      }
      float* sum = sums.Row(taps) + c;
      StoreN(d, hn::Add(dp, LoadN(d, sum, count)), sum, count);
    });
  }
}

// The gradient of input row `row` into `out`, from dp (in dx) and the gradient of the window after
// the pass.
void BackThroughTaps(const CausalConv1dGradArgs& a, core::Mat<const float> after, size_t row,
                     float* out, size_t begin, size_t end) {
  const DF d;
  const size_t length = a.x.rows;
  // Tap k takes this row to output row - 1 - k, which lies in [0, length).
  const size_t first = row > length ? row - length : 0;
  const size_t last = std::min(a.w.rows, row);
  ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
    const size_t c = begin + i;
    VF sum = after.rows != 0 && row >= length ? LoadN(d, after.Row(row - length) + c, count)
                                              : hn::Zero(d);
    for (size_t k = first; k < last; ++k) {
      sum = hn::MulAdd(LoadN(d, a.w.Row(k) + c, count), LoadN(d, a.dx.Row(row - 1 - k) + c, count),
                       sum);
    }
    StoreN(d, sum, out + c, count);
  });
}

void AddRow(const float* from, float* to, size_t count) {
  const DF d;
  ForVectors(count, [&](size_t i, size_t n) HWY_ATTR {
    StoreN(d, hn::Add(LoadN(d, to + i, n), LoadN(d, from + i, n)), to + i, n);
  });
}

// All times of channels [begin, end).
void ConvGradChannels(const CausalConv1dGradArgs& a, size_t begin, size_t end) {
  const size_t taps = a.w.rows, channels = a.x.cols;
  const core::Mat<float> sums = {a.scratch.data, taps + 1, channels, channels};
  BackThroughSilu(a, sums, begin, end);
  core::Mat<float> after = {};
  if (a.dwindow.rows != 0) {
    // A copy: dwindow is overwritten before the last rows of dx, which still need it.
    after = {a.scratch.data + (taps + 1) * channels, taps, channels, channels};
    for (size_t k = 0; k < taps; ++k) {
      std::copy(a.dwindow.Row(k) + begin, a.dwindow.Row(k) + end, after.Row(k) + begin);
    }
    for (size_t k = 0; k < taps; ++k) BackThroughTaps(a, after, k, a.dwindow.Row(k), begin, end);
  }
  // In place of dp: row t needs dp of t and later, and no row before it is needed any more.
  for (size_t t = 0; t < a.x.rows; ++t) {
    BackThroughTaps(a, after, taps + t, a.dx.Row(t), begin, end);
  }
  if (a.dw.rows != 0) {
    for (size_t k = 0; k < taps; ++k) {
      AddRow(sums.Row(k) + begin, a.dw.Row(k) + begin, end - begin);
    }
  }
  if (a.dbias.size != 0) AddRow(sums.Row(taps) + begin, a.dbias.data + begin, end - begin);
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
