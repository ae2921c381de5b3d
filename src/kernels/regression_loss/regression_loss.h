// regression_loss: squared error or Huber's loss between predictions and targets, and its gradient.
//
// Formula    r = p - t, over L rows of O outputs
//            squared error: r^2;  Huber: r^2 / 2 where |r| <= delta, else delta (|r| - delta / 2)
//            losses[l] = sum over o;  gradient[l, o] = scale dloss / dp
// Operands   predictions, targets [L, O] f32; gradient [L, O], written; it may be predictions or
//            targets itself (same pointer and stride); empty: not wanted. losses [L] f64.
// Scratch    none. Threads: rows. Same bits for any L and thread count.
// Errors     none; shapes and delta > 0 are checked by HOGNOSE_DCHECK. A residual that is
//            not finite makes its row's loss so.
// Accuracy   all in f64: the gradient is rounded once; losses to (O + 4) 2^-53.
// Source     textbook; Huber as torch.nn.HuberLoss. Oracle: RegressionLossRef.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

enum class RegressionLossKind { kSquaredError, kHuber };

struct RegressionLossArgs {
  core::Mat<const float> predictions = {};
  core::Mat<const float> targets = {};
  core::Mat<float> gradient = {};
  RegressionLossKind kind = RegressionLossKind::kSquaredError;
  float delta = 1.0f;  // Huber's
  float scale = 1.0f;
  core::Vec<double> losses = {};
};

void RegressionLoss(core::Exec& exec, const RegressionLossArgs& args) noexcept;

void RegressionLossRef(const RegressionLossArgs& args);

}  // namespace hognose::kernels
