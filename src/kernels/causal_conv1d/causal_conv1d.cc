#include "kernels/causal_conv1d/causal_conv1d.h"

#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/causal_conv1d/causal_conv1d.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// All times of channels [begin, end).
void ConvChannels(const CausalConv1dArgs& a, size_t begin, size_t end) {
  const DF d;
  const size_t taps = a.w.rows;
  for (size_t t = 0; t < a.x.rows; ++t) {
    // Tap k reads row t - (taps - 1) + k of x; rows before the start lie in the window, whose last
    // row is time -1.
    const auto input = [&](size_t k) {
      const size_t row = t + k + 1;  // counted from `taps` rows before the start
      return row < taps ? a.window.Row(row) : a.x.Row(row - taps);
    };
    ForVectors(end - begin, [&](size_t i, size_t count) HWY_ATTR {
      const size_t c = begin + i;
      VF sum = a.bias.size != 0 ? LoadN(d, a.bias.data + c, count) : hn::Zero(d);
      for (size_t k = 0; k < taps; ++k) {
        sum = hn::MulAdd(LoadN(d, a.w.Row(k) + c, count), LoadN(d, input(k) + c, count), sum);
      }
      StoreN(d, Silu(d, sum), a.y.Row(t) + c, count);
    });
  }
  // The window of the next call: the last `taps` rows of window and x together.
  for (size_t k = 0; k < taps; ++k) {
    const size_t row = a.x.rows + k;
    const float* from = row < taps ? a.window.Row(row) : a.x.Row(row - taps);
    std::copy(from + begin, from + end, a.window.Row(k) + begin);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(ConvChannels);

void CausalConv1d(core::Exec& exec, const CausalConv1dArgs& args) noexcept {
  HOGNOSE_DCHECK(args.w.cols == args.x.cols && args.window.cols == args.x.cols);
  HOGNOSE_DCHECK(args.window.rows == args.w.rows && args.y.cols == args.x.cols);
  constexpr size_t kChannelsPerTask = 256;
  exec.pool.Run((args.x.cols + kChannelsPerTask - 1) / kChannelsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(ConvChannels)
    (args, task * kChannelsPerTask, std::min(args.x.cols, (task + 1) * kChannelsPerTask));
  });
}

void CausalConv1dRef(const CausalConv1dArgs& a) {
  const size_t taps = a.w.rows;
  for (size_t c = 0; c < a.x.cols; ++c) {
    std::vector<float> in;
    for (size_t k = 0; k < taps; ++k) in.push_back(a.window.Row(k)[c]);
    for (size_t t = 0; t < a.x.rows; ++t) in.push_back(a.x.Row(t)[c]);
    for (size_t t = 0; t < a.x.rows; ++t) {
      double sum = a.bias.size != 0 ? a.bias.data[c] : 0.0;
      for (size_t k = 0; k < taps; ++k) {
        sum += static_cast<double>(a.w.Row(k)[c]) * in[t + 1 + k];
      }
      a.y.Row(t)[c] = static_cast<float>(sum / (1.0 + std::exp(-sum)));
    }
    for (size_t k = 0; k < taps; ++k) a.window.Row(k)[c] = in[a.x.rows + k];
  }
}

}  // namespace hognose::kernels
#endif
