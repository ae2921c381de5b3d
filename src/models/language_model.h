// LanguageModel: embedding, backbone, head.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/backbone.h"
#include "models/tensor_loader.h"

namespace hognose::models {

struct LanguageModel {
  std::string architecture;        // "mamba2"
  codecs::WeightMatrix embedding;  // [V', D]
  core::Vec<float> dembedding;     // where its gradient goes; of a tied head too
  Backbone backbone;
  nn::Linear head;  // [V, D]; the embedding itself when tied
  bool tied = false;
  size_t vocab = 0;  // ids from here on are padding
  FloatStore floats;
  std::vector<std::string> unknown_tensors;

  size_t width() const { return embedding.cols; }
  size_t logits_size() const { return head.rows(); }
  size_t input_ids() const { return embedding.rows; }
  std::vector<nn::StateShape> state_shapes() const { return backbone.state_shapes(); }

  // `exact`: every product in f32.
  core::Result<Workspace> NewWorkspace(const core::Exec& exec, size_t max_rows, bool exact) const {
    return backbone.NewWorkspace(exec, max_rows, exact, width());
  }

  // h [L, D] = the rows of the embedding for ids [L], all below input_ids().
  void Embed(nn::Context& ctx, std::span<const int32_t> ids, core::Mat<float> h) const;
  // Runs ids [L] (1 <= L <= max_rows, all below input_ids()) through all blocks: the tokens of the
  // parts, one after the other. Leaves the residual stream in ws.h and moves the states on; they
  // must be different ones. Allocates nothing.
  void Forward(Workspace& ws, std::span<const int32_t> ids, std::span<const Part> parts) const;
  // out [rows, V] = the head's logits of rows [begin, begin + rows) of the last Forward.
  void Logits(Workspace& ws, size_t begin, core::Mat<float> out) const;
};

}  // namespace hognose::models
