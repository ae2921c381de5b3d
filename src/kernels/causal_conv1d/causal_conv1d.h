// causal_conv1d: depthwise convolution over time with a carried window, then SiLU.
//
// Formula    p[t, c] = bias[c] + sum_k w[k, c] in[t - K + 1 + k, c];  y = silu(p)
//            in[t < 0] are the last rows of the window.
// Gradient   dp = dy silu'(p), p computed again. in[-K .. L - 1] are the window before the pass and
//            x; the window after it is in[L - K .. L - 1], with the gradient dafter:
//            din[s] = sum_k w[k] dp[s + K - 1 - k] over the times in [0, L)
//                     + dafter[s - L + K] for s >= L - K
//            dx[t] = din[t];  the gradient of the window before the pass, row k, = din[k - K]
//            dw[k] = sum_t dp[t] in[t - K + 1 + k];  dbias = sum_t dp[t]
// Operands   x [L, C] f32, the raw inputs; w [K, C] f32 (tap-major: the checkpoint's [C, 1, K]
//            transposed); bias [C] or empty; y [L, C], no alias of x; window [K, C] f32, read and
//            written: the last K raw inputs, oldest first, zero before the start. Any L, C, K >= 1.
//            Gradient: window is the one before the pass. dx may be dy itself (same pointer and
//            stride), never x. dwindow [K, C] is dafter on entry, the gradient of the window
//            before the pass on return.
// Scratch    none; the gradient CausalConv1dGradScratch(K, C) floats. Threads: blocks of channels.
//            Same bits for any thread count and, but for dw and dbias, for any split of time.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   |error| <= (K + 16) eps of the sum of |w x|; of dp <= (K^2 / 4 + K + 16) eps with all
//            operands in [-1, 1].
// Source     math.md 1.1. Oracles: CausalConv1dRef, CausalConv1dGradRef.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

struct CausalConv1dArgs {
  core::Mat<const float> x = {};
  core::Mat<const float> w = {};
  core::Vec<const float> bias = {};
  core::Mat<float> window = {};
  core::Mat<float> y = {};
};

void CausalConv1d(core::Exec& exec, const CausalConv1dArgs& args) noexcept;

void CausalConv1dRef(const CausalConv1dArgs& args);

struct CausalConv1dGradArgs {
  core::Mat<const float> x = {};  // x, w, bias as given to CausalConv1d
  core::Mat<const float> w = {};
  core::Vec<const float> bias = {};
  core::Mat<const float> window = {};
  core::Mat<const float> dy = {};
  core::Mat<float> dx = {};       // written
  core::Mat<float> dw = {};       // added to; empty: not wanted
  core::Vec<float> dbias = {};    // added to; empty: not wanted
  core::Mat<float> dwindow = {};  // empty: zero on entry, not wanted on return
  core::Vec<float> scratch = {};
};

// Floats of scratch for `taps` taps of `channels` channels.
size_t CausalConv1dGradScratch(size_t taps, size_t channels);

void CausalConv1dGrad(core::Exec& exec, const CausalConv1dGradArgs& args) noexcept;

// No alias of any two operands.
void CausalConv1dGradRef(const CausalConv1dGradArgs& args);

}  // namespace hognose::kernels
