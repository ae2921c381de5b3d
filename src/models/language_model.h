// LanguageModel: embedding, blocks of pre-norm residual mixers, final norm, head.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/status.h"
#include "core/tensor.h"
#include "models/tensor_loader.h"
#include "nn/mixer.h"

namespace hognose::models {

struct Block {
  core::Vec<const float> norm_w;  // [D]
  std::unique_ptr<nn::Mixer> mixer;
};

// One sequence's share of a pass: its next `count` tokens.
struct Part {
  size_t count = 0;
  nn::State* state = nullptr;
};

// The buffers of forward passes of at most `max_rows` tokens, planned once.
struct Workspace {
  nn::Context ctx;
  core::Mat<float> h;                 // [max_rows, D] the residual stream
  core::Mat<float> u;                 // [max_rows, D] a block's normed input
  std::vector<nn::Segment> segments;  // of the block at hand; room for max_rows
  core::Arena memory;
  size_t bytes() const { return memory.used() + ctx_bytes; }
  size_t ctx_bytes = 0;
};

struct LanguageModel {
  std::string architecture;        // "mamba2"
  codecs::WeightMatrix embedding;  // [V', D]
  std::vector<Block> blocks;
  core::Vec<const float> norm_f;  // [D]
  float norm_eps = 1e-5f;
  nn::Linear head;  // [V, D]; the embedding itself when tied
  bool tied = false;
  size_t vocab = 0;  // ids from here on are padding
  FloatStore floats;
  std::vector<std::string> unknown_tensors;

  size_t width() const { return embedding.cols; }
  size_t logits_size() const { return head.rows(); }
  size_t input_ids() const { return embedding.rows; }
  std::vector<nn::StateShape> state_shapes() const;

  // `exact`: every product in f32.
  core::Result<Workspace> NewWorkspace(const core::Exec& exec, size_t max_rows, bool exact) const;

  // Runs ids [L] (1 <= L <= max_rows, all below input_ids()) through all blocks: the tokens of the
  // parts, one after the other. Leaves the residual stream in ws.h and moves the states on; they
  // must be different ones. Allocates nothing.
  void Forward(Workspace& ws, std::span<const int32_t> ids, std::span<const Part> parts) const;
  // out [rows, V] = the head's logits of rows [begin, begin + rows) of the last Forward.
  void Logits(Workspace& ws, size_t begin, core::Mat<float> out) const;

 private:
  void Norm(nn::Context& ctx, core::Mat<const float> x, core::Vec<const float> w,
            core::Mat<float> y) const;
};

}  // namespace hognose::models
