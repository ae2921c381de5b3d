// A checkpoint folder as published: config.json, safetensors (one file or an index with shards),
// generation_config.json and tokenizer.json where present.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "core/value.h"
#include "io/safetensors.h"

namespace hognose::io {

struct ModelFolder {
  std::string path;
  core::Value config;                            // an object
  std::optional<core::Value> generation_config;  // an object
  std::string tokenizer_path;                    // empty if the folder has none
  std::vector<SafetensorsFile> files;
  core::TensorMap tensors;  // views into `files`
};

// Errors name the file. A folder without config.json is an error; so are: no weights (a folder with
// only pytorch_model.bin gets a message that says how to convert it), a missing shard, a shard name
// that leaves the folder, a tensor named twice or not in the shard that the index names.
core::Result<ModelFolder> OpenModelFolder(const std::string& path);

}  // namespace hognose::io
