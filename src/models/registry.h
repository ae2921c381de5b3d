// From a checkpoint's configuration and tensors to a model. Never sees a file format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "core/value.h"
#include "models/language_model.h"
#include "models/sequence_model.h"

namespace hognose::models {

struct Checkpoint {
  const core::Value& config;
  std::string config_name;  // begins messages about the configuration: "dir/config.json"
  const core::TensorMap& tensors;
  std::string weights_name;                // begins messages about tensors: "dir/model.safetensors"
  const GradientMap* gradients = nullptr;  // for training
  float adapter_scale = 1.0f;              // of adapters among the tensors (nn::Lora)
};

// Chooses the architecture by `architectures`, then `model_type`, then the original layout's
// ssm_cfg. The tensors must outlive the model.
core::Result<LanguageModel> Build(const Checkpoint& checkpoint);
// A sequence model: its architecture is `model_type`'s, its `architectures` kSequenceClass. Each of
// both refuses the other's configuration, naming the command that takes it.
core::Result<SequenceModel> BuildSequence(const Checkpoint& checkpoint);

// Names of the architectures, for messages and `inspect`.
std::vector<std::string_view> Architectures();

}  // namespace hognose::models
