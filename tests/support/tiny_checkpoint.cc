#include "tests/support/tiny_checkpoint.h"

#include <algorithm>
#include <cstring>

#include "codecs/float16.h"
#include "core/rng.h"

namespace hognose::testing {
namespace {

using core::Value;

constexpr size_t kVocab = 20, kWidth = 8, kInner = 12, kStates = 4, kTaps = 3, kRank = 2;
constexpr size_t kHeads = 4, kGroups = 2;

std::pair<Value::Object*, std::string_view> Locate(Value& config, std::string_view field) {
  constexpr std::string_view kSsm = "ssm_cfg.";
  Value::Object* object = config.AsObject();
  if (!field.starts_with(kSsm)) return {object, field};
  for (auto& [name, value] : *object) {
    if (name == "ssm_cfg") return {value.AsObject(), field.substr(kSsm.size())};
  }
  return {object, field};
}

// One element from `number`, which is exact in every type if it is a small multiple of 1/64.
void Store(core::DType dtype, double number, uint8_t* to) {
  const auto put = [to](auto value) { std::memcpy(to, &value, sizeof(value)); };
  switch (dtype) {
    case core::DType::kF64:
      return put(number);
    case core::DType::kF32:
      return put(static_cast<float>(number));
    case core::DType::kBF16:
      return put(codecs::EncodeBF16(static_cast<float>(number)));
    case core::DType::kF16:
      return put(codecs::EncodeF16(static_cast<float>(number)));
    default:
      *to = 1;  // an integer; the other bytes are zero
  }
}

TinyTensor Random(const std::vector<size_t>& shape, core::DType dtype, uint64_t seed) {
  size_t elements = 1;
  for (const size_t n : shape) elements *= n;
  const size_t size = core::Bytes(dtype);
  TinyTensor tensor{dtype, shape, std::vector<uint8_t>(elements * size)};
  core::Rng rng(seed);
  for (size_t i = 0; i < elements; ++i) {
    const double number = (static_cast<double>(rng.Below(65)) - 32.0) / 64.0;
    Store(dtype, number, tensor.bytes.data() + i * size);
  }
  return tensor;
}

void AddMixer(TinyCheckpoint& c, const std::string& p, bool second) {
  if (!second) {
    c.Put(p + "in_proj.weight", {2 * kInner, kWidth});
    c.Put(p + "conv1d.weight", {kInner, 1, kTaps});
    c.Put(p + "conv1d.bias", {kInner});
    c.Put(p + "x_proj.weight", {kRank + 2 * kStates, kInner});
    c.Put(p + "dt_proj.weight", {kInner, kRank});
    c.Put(p + "dt_proj.bias", {kInner});
    c.Put(p + "A_log", {kInner, kStates});
    c.Put(p + "D", {kInner});
  } else {
    const size_t conv = kInner + 2 * kGroups * kStates;
    c.Put(p + "in_proj.weight", {kInner + conv + kHeads, kWidth});
    c.Put(p + "conv1d.weight", {conv, 1, kTaps});
    c.Put(p + "conv1d.bias", {conv});
    c.Put(p + "dt_bias", {kHeads});
    c.Put(p + "A_log", {kHeads});
    c.Put(p + "D", {kHeads});
    c.Put(p + "norm.weight", {kInner});
  }
  c.Put(p + "out_proj.weight", {kWidth, kInner});
}

Value HfConfig(TinyKind kind) {
  const bool second = kind == TinyKind::kMamba2, falcon = kind == TinyKind::kFalconMamba;
  const char* name = second   ? "Mamba2ForCausalLM"
                     : falcon ? "FalconMambaForCausalLM"
                              : "MambaForCausalLM";
  Value::Object o = {{"architectures", Value::Array{name}},
                     {"model_type", second ? "mamba2" : (falcon ? "falcon_mamba" : "mamba")},
                     {"vocab_size", kVocab},
                     {"hidden_size", kWidth},
                     {"num_hidden_layers", 2},
                     {"state_size", kStates},
                     {"conv_kernel", kTaps},
                     {"hidden_act", "silu"},
                     {"use_bias", false},
                     {"use_conv_bias", true},
                     {"layer_norm_epsilon", 1e-5},
                     {"tie_word_embeddings", true}};
  if (second) {
    o.emplace_back("num_heads", kHeads);
    o.emplace_back("head_dim", kInner / kHeads);
    o.emplace_back("n_groups", kGroups);
    o.emplace_back("time_step_limit", Value::Array{0.0, 100.0});
  } else {
    o.emplace_back("intermediate_size", kInner);
    o.emplace_back("time_step_rank", kRank);
  }
  if (falcon) o.emplace_back("mixer_rms_eps", 1e-6);
  return o;
}

Value OriginalConfig(bool second) {
  Value::Object ssm = {{"layer", second ? "Mamba2" : "Mamba1"},
                       {"d_state", kStates},
                       {"d_conv", kTaps},
                       {"bias", false},
                       {"conv_bias", true}};
  if (second) {
    ssm.emplace_back("headdim", kInner / kHeads);
    ssm.emplace_back("ngroups", kGroups);
  } else {
    ssm.emplace_back("dt_rank", kRank);
  }
  return Value::Object{{"d_model", kWidth},         {"n_layer", 2},     {"vocab_size", kVocab},
                       {"ssm_cfg", std::move(ssm)}, {"rms_norm", true}, {"tie_embeddings", true}};
}

}  // namespace

std::string_view Name(TinyKind kind) {
  constexpr std::string_view kNames[] = {"mamba", "mamba2", "falcon_mamba", "original_mamba",
                                         "original_mamba2"};
  return kNames[static_cast<size_t>(kind)];
}

void TinyCheckpoint::Set(std::string_view field, Value value) {
  const auto [object, name] = Locate(config, field);
  for (auto& member : *object) {
    if (member.first == name) {
      member.second = std::move(value);
      return;
    }
  }
  object->emplace_back(name, std::move(value));
}

void TinyCheckpoint::Drop(std::string_view field) {
  const auto [object, name] = Locate(config, field);
  const auto where = std::find_if(object->begin(), object->end(),
                                  [n = name](const auto& member) { return member.first == n; });
  if (where != object->end()) object->erase(where);
}

std::vector<std::string> TinyCheckpoint::fields() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : *config.AsObject()) {
    names.push_back(name);
    if (name != "ssm_cfg" || value.AsObject() == nullptr) continue;
    for (const auto& [inner, unused] : *value.AsObject()) names.push_back("ssm_cfg." + inner);
  }
  return names;
}

void TinyCheckpoint::Put(const std::string& name, std::vector<size_t> shape, core::DType dtype) {
  uint64_t seed = 1;
  for (const char c : name) seed = seed * 31 + static_cast<uint8_t>(c);
  tensors[name] = Random(shape, dtype, seed);
}

void TinyCheckpoint::Retype(const std::string& name, core::DType dtype) {
  Put(name, tensors.at(name).shape, dtype);
}

core::TensorMap TinyCheckpoint::views() const {
  core::TensorMap map;
  for (const auto& [name, tensor] : tensors) {
    core::TensorView view{tensor.bytes.data(), tensor.dtype, tensor.shape.size(), {}};
    std::copy(tensor.shape.begin(), tensor.shape.end(), view.shape.begin());
    map.emplace(name, view);
  }
  return map;
}

TinyCheckpoint MakeTiny(TinyKind kind) {
  const bool original = kind == TinyKind::kOriginalMamba || kind == TinyKind::kOriginalMamba2;
  const bool second = kind == TinyKind::kMamba2 || kind == TinyKind::kOriginalMamba2;
  TinyCheckpoint c;
  c.config = original ? OriginalConfig(second) : HfConfig(kind);
  c.Put(original ? "backbone.embedding.weight" : "backbone.embeddings.weight", {kVocab, kWidth});
  c.Put("backbone.norm_f.weight", {kWidth});
  for (const std::string layer : {"backbone.layers.0.", "backbone.layers.1."}) {
    c.Put(layer + "norm.weight", {kWidth});
    AddMixer(c, layer + "mixer.", second);
  }
  return c;
}

}  // namespace hognose::testing
