// A checkpoint folder as published: config.json, safetensors (one file or an index with shards),
// generation_config.json and tokenizer.json where present.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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

// Weights are model.safetensors, else the shards of model.safetensors.index.json, else the only
// *.safetensors file. Errors name the file. A folder without config.json is an error; so are: no
// weights (a folder with only pytorch_model.bin gets a message that says how to convert it), a
// missing shard, a shard name that leaves the folder, a tensor in two shards or not in the shard
// that the index names. Tensors that the index doesn't name are taken too.
core::Result<ModelFolder> OpenModelFolder(const std::string& path);

// The text of a model.safetensors.index.json: tensor name to shard's file name.
using WeightMap = std::map<std::string, std::string, std::less<>>;
core::Result<WeightMap> ParseWeightMap(std::string_view json, std::string_view where);

}  // namespace hognose::io
