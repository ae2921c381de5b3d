// Parameters: what training changes: values in f32, gradients and the optimiser's moments; and what
// the model reads: the values themselves, or copies of the matrices in 16 bits.
//
// Tensors that decay come first, then those that don't, each at a multiple of 32 floats; the floats
// between them are zero and stay zero. Frozen tensors stay where and in what type they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/status.h"
#include "core/tensor.h"
#include "models/tensor_loader.h"

namespace hognose::train {

enum class Precision : uint8_t {
  kF32,
  kBF16,  // products in BF16; values, moments, states and all small tensors in f32
  kF16,   // the same in F16, with a scaled loss
};

// Whether weight decay leaves a tensor alone: A_log, D, dt_bias, every bias, norms' weights, the
// embedding (with a head tied to it).
bool HasNoDecay(std::string_view name);
// Whether a tensor is a matrix of products, which Precision concerns.
bool IsMatrix(std::string_view name, const core::TensorView& tensor);

struct Parameter {
  std::string name;
  core::TensorView view;  // of its value, f32
  size_t offset = 0;      // of its value and its gradient, in floats
};

struct ParameterOptions {
  std::function<bool(std::string_view name)> frozen = {};  // none: everything is trained
  // Called with each tensor once it is copied: its memory may be given back.
  std::function<void(const core::TensorView& tensor)> copied = {};
  Precision precision = Precision::kF32;
  bool second_moment = true;  // AdamW's; SGD has one at most
  bool first_moment = true;
};

class Parameters {
 public:
  // Copies the tensors that are trained (f32, bf16 or f16; others are an error that names them);
  // the others must outlive this. `where` begins messages.
  static core::Result<Parameters> Create(const core::TensorMap& tensors, const std::string& where,
                                         const ParameterOptions& options);

  const std::vector<Parameter>& trained() const { return parameters_; }
  // Of which the first decayed() floats decay, and what goes with them.
  core::Vec<float> values() const { return values_; }
  size_t decayed() const { return decayed_; }
  core::Vec<float> gradients() const { return gradients_; }
  core::Vec<float> m() const { return m_; }  // empty where not kept
  core::Vec<float> v() const { return v_; }
  size_t trained_elements() const { return trained_elements_; }
  size_t elements() const { return elements_; }
  size_t bytes() const;

  // What the model reads. Update() must follow every change of values.
  const core::TensorMap& tensors() const { return tensors_; }
  // Each tensor's part of gradients(), or of another such buffer.
  models::GradientMap gradient_map() const { return gradient_map(gradients_); }
  models::GradientMap gradient_map(core::Vec<float> gradients) const;
  void Update(core::Exec exec);

  // The values by name, f32, and the frozen tensors: what is saved.
  core::TensorMap value_map() const;
  core::Vec<float> gradient(const Parameter& p) const {
    return {gradients_.data + p.offset, p.view.elements()};
  }

 private:
  Parameters() = default;

  std::vector<Parameter> parameters_;
  core::Vec<float> values_, gradients_, m_, v_;
  core::Vec<uint16_t> copies_;        // of matrices, in 16 bits
  std::vector<size_t> copied_;        // indices into parameters_
  std::vector<size_t> copy_offsets_;  // into copies_
  Precision precision_ = Precision::kF32;
  size_t decayed_ = 0, total_ = 0, copy_total_ = 0;
  size_t trained_elements_ = 0, elements_ = 0;
  core::TensorMap tensors_, frozen_;
  core::Arena memory_;           // values_, copies_
  core::Arena training_memory_;  // gradients_, m_, v_
};

}  // namespace hognose::train
