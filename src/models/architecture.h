// What one architecture gives to the registry: names, and how a layer's mixer is built.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "models/fields.h"
#include "models/tensor_loader.h"
#include "nn/mixer.h"

namespace hognose::models {

struct Architecture {
  std::string_view name;            // model_type in config.json
  std::string_view class_name;      // in `architectures`
  std::string_view original_layer;  // ssm_cfg.layer of the original layout, or empty
  // Builds the mixer whose tensors begin with `prefix` ("backbone.layers.3.mixer.") and which reads
  // and writes rows of `width` (D, as the embedding says).
  core::Result<std::unique_ptr<nn::Mixer>> (*build_mixer)(Fields& config, TensorLoader& tensors,
                                                          const std::string& prefix, size_t width);
};

extern const Architecture kMamba;        // mamba.cc
extern const Architecture kMamba2;       // mamba2.cc
extern const Architecture kFalconMamba;  // falcon_mamba.cc

}  // namespace hognose::models
