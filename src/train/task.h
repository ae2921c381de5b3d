// Task: what a trainer trains: a model, data, and the loss between them.
#pragma once

#include <cstddef>

#include "core/status.h"
#include "core/tensor.h"
#include "models/tensor_loader.h"

namespace hognose::train {

class Task {
 public:
  virtual ~Task() = default;

  // Builds the model over these tensors, its gradients going there. After every change of them.
  virtual core::Status Bind(const core::TensorMap& tensors,
                            const models::GradientMap& gradients) = 0;
  // Sequences of a step; each is its own forward and backward pass.
  virtual size_t rows() const = 0;
  // What the loss of a step is the mean over.
  virtual size_t Targets(size_t step) = 0;
  // The sum of the losses of one row; adds `scale` times its gradients.
  virtual double Row(size_t step, size_t row, float scale) = 0;
  // The mean loss over the evaluation data. Only if there are some.
  virtual bool has_evaluation() const = 0;
  virtual double Evaluate() = 0;
  // Tokens, or rows of a table, of a step: for speeds.
  virtual size_t tokens_per_step() const = 0;
};

}  // namespace hognose::train
