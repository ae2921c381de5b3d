#include "io/adapter.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "io/file.h"
#include "io/json.h"

namespace hognose::io {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kConfig = "adapter_config.json", kWeights = "adapter_model.safetensors";

core::Status Wrong(const std::string& where, std::string_view field, const core::Value* got,
                   std::string_view want) {
  return core::Status::Failed(fmt::format("{}: {}: got {}, want {}", where, field,
                                          got == nullptr ? "nothing" : ToJson(*got), want));
}

struct Scaling {
  size_t rank = 0;
  float scale = 0.0f;
};

core::Result<Scaling> ReadScaling(const core::Value& config, const std::string& where) {
  const core::Value* type = config.Find("peft_type");
  if (type == nullptr || type->AsString() == nullptr || *type->AsString() != "LORA") {
    return Wrong(where, "peft_type", type, "\"LORA\"");
  }
  for (const std::string_view kind : {"use_dora", "fan_in_fan_out"}) {
    const core::Value* flag = config.Find(kind);
    if (flag == nullptr || flag->is_null()) continue;
    if (flag->AsBool() == nullptr || *flag->AsBool()) return Wrong(where, kind, flag, "false");
  }
  for (const std::string_view kind : {"rank_pattern", "alpha_pattern"}) {
    const core::Value* map = config.Find(kind);
    if (map == nullptr || map->is_null()) continue;
    if (map->AsObject() == nullptr || !map->AsObject()->empty()) {
      return Wrong(where, kind, map, "none");
    }
  }
  // Other layers than the model's, or adapters that begin at some token.
  for (const std::string_view kind : {"layer_replication", "alora_invocation_tokens"}) {
    const core::Value* value = config.Find(kind);
    if (value != nullptr && !value->is_null()) return Wrong(where, kind, value, "null");
  }
  double rank = 0.0, alpha = 0.0;
  const core::Value* r = config.Find("r");
  constexpr double kMostRank = 1 << 24;
  if (r == nullptr || !r->AsDouble(&rank) || !(rank >= 1.0 && rank <= kMostRank) ||
      rank != std::floor(rank)) {
    return Wrong(where, "r", r, "a rank of at least 1");
  }
  const core::Value* a = config.Find("lora_alpha");
  if (a == nullptr || !a->AsDouble(&alpha)) return Wrong(where, "lora_alpha", a, "a number");
  const core::Value* stabilised = config.Find("use_rslora");
  const bool given = stabilised != nullptr && !stabilised->is_null();
  if (given && stabilised->AsBool() == nullptr) {
    return Wrong(where, "use_rslora", stabilised, "true or false");
  }
  const bool root = given && *stabilised->AsBool();
  const double scale = alpha / (root ? std::sqrt(rank) : rank);
  if (!(std::abs(scale) <= std::numeric_limits<float>::max())) {
    return Wrong(where, "lora_alpha", a, "a number that is finite in f32");
  }
  return Scaling{static_cast<size_t>(rank), static_cast<float>(scale)};
}

// Each A with its B, of the rank that the scale was computed for.
core::Status CheckPairs(const Adapter& adapter, size_t rank) {
  if (adapter.tensors.empty()) {
    return core::Status::Failed(
        fmt::format("{}: got no tensor, want lora_A and lora_B", adapter.file.path()));
  }
  for (const auto& [name, tensor] : adapter.tensors) {
    const bool a = name.ends_with(kLoraA);
    const std::string other =
        name.substr(0, name.size() - kLoraA.size()) + std::string(a ? kLoraB : kLoraA);
    if (!adapter.tensors.contains(other)) {
      return core::Status::Failed(
          fmt::format("{}: {}: the tensor is missing", adapter.file.path(), other));
    }
    if (tensor.rank == 2 && tensor.shape[a ? 0 : 1] == rank) continue;
    return core::Status::Failed(fmt::format("{}: {}: got {}, want {} of r {} in {}",
                                            adapter.file.path(), name, core::ToString(tensor),
                                            a ? "[r, K]" : "[M, r]", rank, kConfig));
  }
  return {};
}

}  // namespace

core::Result<Adapter> OpenAdapter(const std::string& folder) {
  const std::string config_path = (std::filesystem::path(folder) / kConfig).string();
  HOGNOSE_ASSIGN(const std::string text, ReadFile(config_path));
  Adapter adapter;
  HOGNOSE_ASSIGN(adapter.config, ParseJson(text, config_path));
  HOGNOSE_ASSIGN(const Scaling scaling, ReadScaling(adapter.config, config_path));
  adapter.scale = scaling.scale;
  HOGNOSE_ASSIGN(adapter.file,
                 SafetensorsFile::Open((std::filesystem::path(folder) / kWeights).string()));
  for (const auto& [name, tensor] : adapter.file.tensors()) {
    std::string_view bare = name;
    if (bare.starts_with(kPrefix)) bare.remove_prefix(kPrefix.size());
    if (!bare.ends_with(kLoraA) && !bare.ends_with(kLoraB)) {
      return core::Status::Failed(
          fmt::format("{}: {}: got a tensor that is neither lora_A nor "
                      "lora_B, want only those",
                      adapter.file.path(), name));
    }
    if (adapter.tensors.emplace(bare, tensor).second) continue;
    return core::Status::Failed(fmt::format("{}: {}: got it with and without {}, want one of them",
                                            adapter.file.path(), bare, kPrefix));
  }
  HOGNOSE_TRY(CheckPairs(adapter, scaling.rank));
  return adapter;
}

std::string AdapterConfig(const LoraOptions& o) {
  core::Value::Array targets(o.targets.begin(), o.targets.end());
  return ToJson(core::Value::Object{{"peft_type", "LORA"},
                                    {"task_type", "CAUSAL_LM"},
                                    {"base_model_name_or_path", o.base},
                                    {"r", o.rank},
                                    {"lora_alpha", o.alpha},
                                    {"lora_dropout", 0.0},
                                    {"bias", "none"},
                                    {"fan_in_fan_out", false},
                                    {"inference_mode", true},
                                    {"target_modules", std::move(targets)}},
                2) +
         "\n";
}

core::Status WriteAdapter(const std::string& path, const core::TensorMap& tensors) {
  std::vector<std::pair<std::string, core::TensorView>> named;
  for (const auto& [name, tensor] : tensors)
    named.emplace_back(std::string(kPrefix) + name, tensor);
  return WriteSafetensors(path, named, {{"format", "pt"}});
}

}  // namespace hognose::io
