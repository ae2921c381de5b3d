// SequenceModel: continuous features in, numbers or classes out: encoder, backbone, head. It works
// on normalised numbers; `config` says how they are made.
#pragma once

#include <string>
#include <vector>

#include "models/backbone.h"
#include "models/sequence_config.h"
#include "models/tensor_loader.h"

namespace hognose::models {

struct SequenceModel {
  std::string architecture;  // "mamba2"
  SequenceConfig config;
  nn::Linear encoder;  // [D, F], with bias
  Backbone backbone;
  nn::Linear head;  // [O, D], with bias
  FloatStore floats;
  std::vector<std::string> unknown_tensors;

  size_t width() const { return encoder.rows(); }
  size_t inputs() const { return encoder.cols(); }  // F
  size_t outputs() const { return head.rows(); }    // O
  std::vector<nn::StateShape> state_shapes() const { return backbone.state_shapes(); }

  // `exact`: every product in f32.
  core::Result<Workspace> NewWorkspace(const core::Exec& exec, size_t max_rows, bool exact) const;

  // y [L, O] = the answers to the next rows x [L, F] of the sequence whose state this is
  // (1 <= L <= max_rows); the state moves on. The same bits for any split into calls. Allocates
  // nothing.
  void Forward(Workspace& ws, core::Mat<const float> x, nn::State& state, core::Mat<float> y) const;
};

}  // namespace hognose::models
