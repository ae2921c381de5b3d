// LoRA adapters in PEFT's layout: a folder with adapter_config.json and adapter_model.safetensors.
//
//   base_model.model.<module>.lora_A.weight   [r, K]
//   base_model.model.<module>.lora_B.weight   [M, r]
//
// <module>.weight becomes W + (alpha / r) B A. (E. Hu et al., "LoRA", 2021.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "core/value.h"
#include "io/safetensors.h"

namespace hognose::io {

inline constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

struct Adapter {
  core::Value config;
  float scale = 1.0f;       // alpha / r
  core::TensorMap tensors;  // without the "base_model.model." in front of the names
  SafetensorsFile file;     // what they are views into
};

// Refuses other kinds than plain LoRA (rank-stabilised scaling is taken), and tensors that are
// neither A nor B. Messages begin with the file.
core::Result<Adapter> OpenAdapter(const std::string& folder);

struct LoraOptions {
  size_t rank = 8;
  double alpha = 16.0;
  std::vector<std::string> targets = {};  // "in_proj", ...
  std::string base = {};                  // the model that it belongs to
};
std::string AdapterConfig(const LoraOptions& options);
// `tensors` without the prefix.
core::Status WriteAdapter(const std::string& path, const core::TensorMap& tensors);

}  // namespace hognose::io
