// Task: what a trainer trains: a model, data, and the loss between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "core/tensor.h"
#include "models/language_model_pass.h"
#include "models/tape.h"
#include "models/tensor_loader.h"
#include "train/batches.h"

namespace hognose::train {

// What every task is told about a run.
struct TaskOptions {
  Order order = Order::kShuffled;
  size_t batch = 1;       // rows of one batch
  size_t accumulate = 1;  // batches of a step
  size_t length = 1;      // L
  size_t steps = 1;
  uint64_t seed = 0;
  models::Checkpointing checkpointing = models::Checkpointing::kNone;
  bool exact = true;  // products in f32; otherwise operands may be rounded to bf16
  bool half = false;  // products in F16
  float dropout = 0.0f;
  float adapter_scale = 1.0f;  // of adapters among the tensors

  models::PassOptions pass_options() const {
    return {.rows = length,
            .checkpointing = checkpointing,
            .exact = exact,
            .half = half,
            .dropout = dropout};
  }
  // A number for every row that was ever trained on, however rows are grouped: dropout's noise.
  uint64_t Noise(size_t step, size_t row) const {
    return seed * 0xD6E8FEB86659FD93u + step * batch * accumulate + row;
  }
};

class Task {
 public:
  virtual ~Task() = default;

  // Builds a model over these tensors for every lane, its gradients going to the lane's. After
  // every change of them.
  virtual core::Status Bind(const core::TensorMap& tensors,
                            std::span<const models::GradientMap> lanes) = 0;
  // Bytes that a lane needs for its passes. After Bind().
  virtual size_t lane_bytes() const = 0;
  // Sequences of a step; each is its own forward and backward pass.
  virtual size_t rows() const = 0;
  // What the loss of a step is the mean over.
  virtual size_t Targets(size_t step) = 0;
  // The sum of the losses of one row; adds `scale` times its gradients to those of the lane. Lanes
  // may work at the same time.
  virtual double Row(size_t step, size_t row, float scale, size_t lane) = 0;
  // The mean loss over the evaluation data. Only if there are some.
  virtual bool has_evaluation() const = 0;
  virtual double Evaluate() = 0;
  // Tokens, or rows of a table, of a step: for speeds.
  virtual size_t tokens_per_step() const = 0;
};

}  // namespace hognose::train
