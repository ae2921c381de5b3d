// causal_conv1d: depthwise convolution over time with a carried window, then SiLU.
//
// Formula    p[t, c] = bias[c] + sum_k w[k, c] in[t - K + 1 + k, c];  y = silu(p)
//            in[t < 0] are the last rows of the window.
// Operands   x [L, C] f32, the raw inputs; w [K, C] f32 (tap-major: the checkpoint's [C, 1, K]
//            transposed); bias [C] or empty; y [L, C], no alias of x; window [K, C] f32, read and
//            written: the last K raw inputs, oldest first, zero before the start. Any L, C, K >= 1.
// Scratch    none. Threads: blocks of channels. Same bits for any split of time and thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   |error| <= (K + 16) eps of the sum of |w x|.
// Source     math.md 1.1. Oracle: CausalConv1dRef.
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

}  // namespace hognose::kernels
