// cross_entropy: the loss of a language model's rows of logits, and its gradient in their place.
//
// Formula    losses[l] = log(sum_v exp(x[l, v])) - x[l, targets[l]], the sum over v < valid
//            x[l, v] = scale (exp(x[l, v]) / sum - [v = targets[l]])    when `gradient`
//            A row whose target is kIgnored has loss 0 and gradient 0. Columns from `valid` on,
//            which only pad the matrix, have no probability and gradient 0.
// Operands   logits [L, V] f32, read and written, any finite values or -infinity (+infinity and NaN
//            give a loss that is NaN); targets [L] in [0, valid) or kIgnored; losses [L] f64.
// Scratch    none. Threads: rows. Same bits for any L and thread count.
// Errors     none; the caller checks the targets. Shapes are checked by HOGNOSE_DCHECK.
// Accuracy   the sum: exp to 2^-22, blocks of 256 added in f32 by lanes, blocks in f64: at most
//            (256 / lanes / 2 + 8) eps. That is the absolute error of the loss, and, with
//            (max - x) / 2 eps for the argument of exp, the relative one of each probability.
// Cost       two reads of a row for the loss, two writes more for the gradient; one exp per logit.
// Source     textbook; the maximum is taken out first. Oracle: CrossEntropyRef.
#pragma once

#include <cstdint>
#include <span>

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

// As torch's ignore_index.
inline constexpr int32_t kIgnored = -100;

struct CrossEntropyArgs {
  core::Mat<float> logits = {};
  size_t valid = 0;  // columns with a probability; 0: all
  std::span<const int32_t> targets = {};
  float scale = 1.0f;
  core::Vec<double> losses = {};
  bool gradient = true;  // false: the logits stay
};

void CrossEntropy(core::Exec& exec, const CrossEntropyArgs& args) noexcept;

void CrossEntropyRef(const CrossEntropyArgs& args);

}  // namespace hognose::kernels
