#include "io/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "io/json.h"

namespace hognose::io {
namespace {

namespace fs = std::filesystem;
using core::Result;
using core::Status;
using core::Value;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxIndexBytes = size_t{256} << 20;
constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

std::string Join(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

Result<Value> ReadObject(const std::string& path) {
  HOGNOSE_ASSIGN(const std::string text, ReadFile(path, kMaxConfigBytes));
  HOGNOSE_ASSIGN(Value value, ParseJson(text, path));
  if (value.AsObject() == nullptr) {
    return Status::Failed(fmt::format("{}: got {}, want an object", path, value.TypeName()));
  }
  return value;
}

Status CheckFolder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::directory) return Status();
  if (status.type() == fs::file_type::not_found) {
    return Status::Failed(fmt::format("{}: got no such folder, want a model folder", path));
  }
  if (status.type() == fs::file_type::none) {
    return Status::Failed(fmt::format("{}: could not open: {}", path, error.message()));
  }
  return Status::Failed(
      fmt::format("{}: got a file, want a model folder (config.json and *.safetensors)", path));
}

// The names of the folder's files, in order.
Result<std::vector<std::string>> List(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) {
    return Status::Failed(fmt::format("{}: could not list: {}", path, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The only *.safetensors file of a folder that has neither model.safetensors nor an index.
Result<std::string> FindSingleFile(const std::string& path) {
  HOGNOSE_ASSIGN(const std::vector<std::string> names, List(path));
  std::vector<std::string> found;
  std::string pickled;
  for (const auto& name : names) {
    if (name.starts_with('.')) continue;
    if (name.ends_with(".safetensors")) found.push_back(name);
    const bool is_pickled =
        name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
    if (is_pickled && (pickled.empty() || name.starts_with("pytorch_model"))) pickled = name;
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    return Status::Failed(fmt::format("{}: got {} *.safetensors files, want {}, or {} for several",
                                      path, found.size(), kWeights, kIndex));
  }
  if (!pickled.empty()) {
    return Status::Failed(
        fmt::format("{}: got a pickled checkpoint, want safetensors; convert it with transformers: "
                    "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW, "
                    "safe_serialization=True)",
                    Join(path, pickled)));
  }
  return Status::Failed(
      fmt::format("{}: got no weights, want {} or {} with its shards", path, kWeights, kIndex));
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

// Adds a file's tensors to the folder's. `first` remembers which file each came from.
Status AddTensors(const std::string& name, const SafetensorsFile& file,
                  std::map<std::string, std::string, std::less<>>* first, ModelFolder* folder) {
  for (const auto& [tensor_name, tensor] : file.tensors()) {
    const auto [it, added] = first->emplace(tensor_name, name);
    if (!added) {
      return Status::Failed(fmt::format("{}: {}: got this tensor also in {}, want it in one file",
                                        Join(folder->path, name), tensor_name, it->second));
    }
    folder->tensors.emplace(tensor_name, tensor);
  }
  return Status();
}

Status OpenShards(ModelFolder* folder) {
  const std::string index_path = Join(folder->path, kIndex);
  HOGNOSE_ASSIGN(const std::string text, ReadFile(index_path, kMaxIndexBytes));
  HOGNOSE_ASSIGN(const WeightMap weight_map, ParseWeightMap(text, index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) {
    if (!shards.insert(shard).second) continue;
    if (!Exists(Join(folder->path, shard))) {
      return Status::Failed(fmt::format("{}: got no such file, want the shard that {} names for {}",
                                        Join(folder->path, shard), kIndex, tensor));
    }
  }
  std::map<std::string, std::string, std::less<>> first;
  for (const auto& shard : shards) {
    HOGNOSE_ASSIGN(SafetensorsFile file, SafetensorsFile::Open(Join(folder->path, shard)));
    HOGNOSE_TRY(AddTensors(shard, file, &first, folder));
    folder->files.push_back(std::move(file));
  }
  for (const auto& [tensor, shard] : weight_map) {
    const auto it = first.find(tensor);
    if (it == first.end() || it->second != shard) {
      return Status::Failed(fmt::format("{}: {}: got it in {}, want it in {}", index_path, tensor,
                                        it == first.end() ? std::string("no shard") : it->second,
                                        shard));
    }
  }
  return Status();
}

Status OpenWeights(ModelFolder* folder) {
  std::string name(kWeights);
  if (!Exists(Join(folder->path, name))) {
    if (Exists(Join(folder->path, kIndex))) return OpenShards(folder);
    HOGNOSE_ASSIGN(name, FindSingleFile(folder->path));
  }
  HOGNOSE_ASSIGN(SafetensorsFile file, SafetensorsFile::Open(Join(folder->path, name)));
  folder->tensors = file.tensors();
  folder->files.push_back(std::move(file));
  return Status();
}

}  // namespace

Result<WeightMap> ParseWeightMap(std::string_view json, std::string_view where) {
  HOGNOSE_ASSIGN(const Value root, ParseJson(json, where));
  const Value* map = root.Find("weight_map");
  if (map == nullptr || map->AsObject() == nullptr) {
    return Status::Failed(
        fmt::format("{}: weight_map: got {}, want an object of tensor names and shards", where,
                    map == nullptr ? "nothing" : map->TypeName()));
  }
  WeightMap result;
  for (const auto& [tensor, shard] : *map->AsObject()) {
    if (shard.AsString() == nullptr) {
      return Status::Failed(fmt::format("{}: weight_map: {}: got {}, want a file name", where,
                                        tensor, shard.TypeName()));
    }
    if (!IsPlainName(*shard.AsString())) {
      return Status::Failed(fmt::format("{}: weight_map: {}: got {}, want a plain file name", where,
                                        tensor, ToJson(shard)));
    }
    result.emplace(tensor, *shard.AsString());
  }
  if (result.empty()) {
    return Status::Failed(
        fmt::format("{}: weight_map: got an empty object, want tensor names and shards", where));
  }
  return result;
}

Result<ModelFolder> OpenModelFolder(const std::string& path) {
  HOGNOSE_TRY(CheckFolder(path));
  ModelFolder folder;
  folder.path = path;
  const std::string config_path = Join(path, "config.json");
  if (!Exists(config_path)) {
    return Status::Failed(
        fmt::format("{}: got no such file, want a model's configuration in it", config_path));
  }
  HOGNOSE_ASSIGN(folder.config, ReadObject(config_path));
  const std::string generation_path = Join(path, "generation_config.json");
  if (Exists(generation_path)) {
    HOGNOSE_ASSIGN(folder.generation_config, ReadObject(generation_path));
  }
  if (std::string tokenizer = Join(path, "tokenizer.json"); Exists(tokenizer)) {
    folder.tokenizer_path = std::move(tokenizer);
  }
  HOGNOSE_TRY(OpenWeights(&folder));
  return folder;
}

}  // namespace hognose::io
