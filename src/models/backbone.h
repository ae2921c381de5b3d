// Backbone: blocks of pre-norm residual mixers and the norm behind them; what every model here is
// built around.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/status.h"
#include "core/tensor.h"
#include "nn/mixer.h"

namespace hognose::models {

struct Block {
  core::Vec<const float> norm_w;  // [D]
  core::Vec<float> dnorm_w;       // where its gradient goes; empty: not wanted
  std::unique_ptr<nn::Mixer> mixer;
};

// One sequence's share of a pass: its next `count` rows.
struct Part {
  size_t count = 0;
  nn::State* state = nullptr;
};

// The buffers of forward passes of at most `max_rows` rows, planned once.
struct Workspace {
  nn::Context ctx;
  core::Mat<float> h;                 // [max_rows, D] the residual stream
  core::Mat<float> u;                 // [max_rows, D] a block's normed input
  std::vector<nn::Segment> segments;  // of the block at hand; room for max_rows
  core::Arena memory;
  size_t bytes() const { return memory.used() + ctx_bytes; }
  size_t ctx_bytes = 0;
};

struct Backbone {
  size_t width = 0;  // D
  std::vector<Block> blocks;
  core::Vec<const float> norm_f;  // [D]
  core::Vec<float> dnorm_f;
  float norm_eps = 1e-5f;

  std::vector<nn::StateShape> state_shapes() const;
  // The largest K of all products.
  size_t max_cols() const;
  size_t max_rank() const;  // of adapters
  size_t max_size() const;  // the largest K or M of all products

  // `exact`: every product in f32. `other_cols`: the largest K of products outside the backbone
  // that use ctx.x_scratch.
  core::Result<Workspace> NewWorkspace(const core::Exec& exec, size_t max_rows, bool exact,
                                       size_t other_cols) const;

  // Runs the first `rows` rows of ws.h through all blocks, in place: the rows of the parts, one
  // after the other, whose states (different ones) move on. Allocates nothing.
  void Forward(Workspace& ws, size_t rows, std::span<const Part> parts) const;
  // y = x / rms(x) w, by rows.
  void Norm(nn::Context& ctx, core::Mat<const float> x, core::Vec<const float> w,
            core::Mat<float> y) const;
};

}  // namespace hognose::models
