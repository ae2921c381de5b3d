#include "train/new_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "core/rng.h"
#include "models/fields.h"
#include "models/tensor_loader.h"

namespace hognose::train {
namespace {

// How the values of a tensor begin.
enum class Initial {
  kZeros,
  kOnes,
  kUniform,    // within 1 / sqrt(fan in)
  kOutput,     // the same, divided by sqrt(layers): what a block adds to the residual stream
  kNormal,     // deviation 0.02
  kStates,     // log(1 .. N) for each channel (Mamba-1's A_log)
  kLogOfHead,  // log of a number from 1 to 16 (Mamba-2's A_log)
  kTimeStep,   // what softplus makes log-uniform from 0.001 to 0.1
};

struct Row {
  std::string name;
  std::vector<size_t> shape;
  Initial initial;
  size_t fan_in = 1;
};

struct Sizes {
  size_t d, layers, e, n, k, r, h, p, g;
  bool bias, conv_bias;
};

core::Status Wrong(std::string_view flag, size_t got, std::string_view want) {
  return core::Status::Usage(fmt::format("{}: got {}, want {}", flag, got, want));
}

std::vector<Row> MambaMixer(const Sizes& s) {
  std::vector<Row> rows = {
      {"in_proj.weight", {2 * s.e, s.d}, Initial::kUniform, s.d},
      {"conv1d.weight", {s.e, 1, s.k}, Initial::kUniform, s.k},
      {"x_proj.weight", {s.r + 2 * s.n, s.e}, Initial::kUniform, s.e},
      {"dt_proj.weight", {s.e, s.r}, Initial::kUniform, s.r},
      {"dt_proj.bias", {s.e}, Initial::kTimeStep},
      {"A_log", {s.e, s.n}, Initial::kStates},
      {"D", {s.e}, Initial::kOnes},
      {"out_proj.weight", {s.d, s.e}, Initial::kOutput, s.e},
  };
  if (s.conv_bias) rows.push_back({"conv1d.bias", {s.e}, Initial::kUniform, s.k});
  if (s.bias) rows.push_back({"in_proj.bias", {2 * s.e}, Initial::kZeros});
  if (s.bias) rows.push_back({"out_proj.bias", {s.d}, Initial::kZeros});
  return rows;
}

std::vector<Row> Mamba2Mixer(const Sizes& s) {
  const size_t conv = s.e + 2 * s.g * s.n, in = s.e + conv + s.h;
  std::vector<Row> rows = {
      {"in_proj.weight", {in, s.d}, Initial::kUniform, s.d},
      {"conv1d.weight", {conv, 1, s.k}, Initial::kUniform, s.k},
      {"dt_bias", {s.h}, Initial::kTimeStep},
      {"A_log", {s.h}, Initial::kLogOfHead},
      {"D", {s.h}, Initial::kOnes},
      {"norm.weight", {s.e}, Initial::kOnes},
      {"out_proj.weight", {s.d, s.e}, Initial::kOutput, s.e},
  };
  if (s.conv_bias) rows.push_back({"conv1d.bias", {conv}, Initial::kUniform, s.k});
  if (s.bias) rows.push_back({"in_proj.bias", {in}, Initial::kZeros});
  if (s.bias) rows.push_back({"out_proj.bias", {s.d}, Initial::kZeros});
  return rows;
}

double Normal(core::Rng& rng) {
  const double u = 1.0 - rng.Uniform(), v = rng.Uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

double Draw(const Row& row, size_t index, size_t layers, core::Rng& rng) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(row.fan_in));
  switch (row.initial) {
    case Initial::kZeros:
      return 0.0;
    case Initial::kOnes:
      return 1.0;
    case Initial::kUniform:
      return rng.Uniform(-bound, bound);
    case Initial::kOutput:
      return rng.Uniform(-bound, bound) / std::sqrt(static_cast<double>(layers));
    case Initial::kNormal:
      return 0.02 * Normal(rng);
    case Initial::kStates:
      return std::log(static_cast<double>(index % row.shape.back() + 1));
    case Initial::kLogOfHead:
      return std::log(rng.Uniform(1.0, 16.0));
    case Initial::kTimeStep: {
      const double dt = std::exp(rng.Uniform(std::log(0.001), std::log(0.1)));
      return dt + std::log(-std::expm1(-dt));  // the inverse of softplus
    }
  }
  HOGNOSE_CHECK(false);
}

// A seed of its own for every tensor, so that one more or less changes no other.
uint64_t SeedOf(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xCBF29CE484222325u ^ seed;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

void Fill(const Row& row, size_t layers, uint64_t seed, NewTensors& out) {
  core::TensorView view;
  view.rank = row.shape.size();
  std::copy(row.shape.begin(), row.shape.end(), view.shape.begin());
  core::Rng rng(SeedOf(row.name, seed));
  std::vector<float> values(view.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(Draw(row, i, layers, rng));
  }
  out.memory.push_back(std::move(values));
  view.data = out.memory.back().data();
  out.tensors[row.name] = view;
}

// A size that must be there and above zero.
core::Result<size_t> Need(models::Fields& fields, std::string_view name) {
  const auto field = fields.Size({name});
  HOGNOSE_TRY(fields.status());
  if (field && field->value > 0) return field->value;
  return core::Status::Failed(
      fmt::format("{}: {}: got {}, want a size", fields.where(), name, field ? "0" : "nothing"));
}

core::Result<Sizes> ReadSizes(models::Fields& fields, bool mamba2) {
  Sizes s{};
  HOGNOSE_ASSIGN(s.d, Need(fields, "hidden_size"));
  HOGNOSE_ASSIGN(s.layers, Need(fields, "num_hidden_layers"));
  HOGNOSE_ASSIGN(s.n, Need(fields, "state_size"));
  HOGNOSE_ASSIGN(s.k, Need(fields, "conv_kernel"));
  const auto expand = fields.Size({"expand"});
  s.e = (expand ? expand->value : 2) * s.d;
  if (mamba2) {
    HOGNOSE_ASSIGN(s.h, Need(fields, "num_heads"));
    HOGNOSE_ASSIGN(s.p, Need(fields, "head_dim"));
    HOGNOSE_ASSIGN(s.g, Need(fields, "n_groups"));
    s.e = s.h * s.p;
    if (s.h % s.g != 0) {
      return core::Status::Failed(fmt::format(
          "{}: n_groups: got {}, want a divisor of the {} heads", fields.where(), s.g, s.h));
    }
  } else {
    const auto inner = fields.Size({"intermediate_size"});
    const auto rank = fields.Size({"time_step_rank"});
    if (inner) s.e = inner->value;
    s.r = rank ? rank->value : (s.d + 15) / 16;
  }
  s.bias = fields.Bool({"use_bias"}).value_or(false);
  s.conv_bias = fields.Bool({"use_conv_bias"}).value_or(true);
  HOGNOSE_TRY(fields.status());
  return s;
}

}  // namespace

core::Value With(core::Value config, std::initializer_list<core::Value::Member> fields) {
  core::Value::Object& object = *config.AsObject();
  for (const auto& field : fields) {
    const auto same = [&](const core::Value::Member& m) { return m.first == field.first; };
    const auto it = std::find_if(object.begin(), object.end(), same);
    if (it == object.end()) {
      object.push_back(field);
    } else {
      it->second = field.second;
    }
  }
  return config;
}

core::Result<core::Value> MakeConfig(const ModelSizes& s) {
  const bool mamba2 = s.architecture == "mamba2";
  const size_t inner = s.expand * s.width;
  if (mamba2 && (s.head_dim == 0 || inner % s.head_dim != 0)) {
    return Wrong("--head-dim", s.head_dim,
                 fmt::format("a divisor of expand times width, {}", inner));
  }
  if (mamba2 && (s.groups == 0 || inner / s.head_dim % s.groups != 0)) {
    return Wrong("--groups", s.groups,
                 fmt::format("a divisor of the {} heads", inner / s.head_dim));
  }
  core::Value::Object config = {
      {"architectures",
       core::Value::Array{core::Value(mamba2 ? "Mamba2ForCausalLM" : "MambaForCausalLM")}},
      {"model_type", s.architecture},
      {"hidden_size", s.width},
      {"num_hidden_layers", s.layers},
      {"state_size", s.states != 0 ? s.states
                     : mamba2      ? 128
                                   : 16},
      {"expand", s.expand},
      {"conv_kernel", s.taps},
      {"hidden_act", "silu"},
      {"use_bias", false},
      {"use_conv_bias", true},
      {"layer_norm_epsilon", 1e-5},
      {"rms_norm", true},
      {"residual_in_fp32", true},
      {"tie_word_embeddings", true},
      {"torch_dtype", "float32"},
  };
  if (mamba2) {
    config.emplace_back("num_heads", inner / s.head_dim);
    config.emplace_back("head_dim", s.head_dim);
    config.emplace_back("n_groups", s.groups);
  } else {
    config.emplace_back("intermediate_size", inner);
    config.emplace_back("time_step_rank", s.dt_rank != 0 ? s.dt_rank : (s.width + 15) / 16);
  }
  if (s.dt_limit) {
    if (!mamba2) {
      return core::Status::Usage("--time-step-limit: got limits for mamba, want them for mamba2");
    }
    config.emplace_back("time_step_limit", core::Value::Array{core::Value(s.dt_limit->first),
                                                              core::Value(s.dt_limit->second)});
  }
  return core::Value(std::move(config));
}

core::Result<NewTensors> InitialTensors(const core::Value& config, const std::string& where,
                                        uint64_t seed,
                                        const std::optional<SequenceSizes>& sequence) {
  models::Fields fields(config, where);
  const std::string type = fields.Text("model_type").value_or("");
  HOGNOSE_TRY(fields.status());
  const bool mamba2 = type == "mamba2";
  if (!mamba2 && type != "mamba" && type != "falcon_mamba") {
    return core::Status::Failed(
        fmt::format("{}: model_type: got \"{}\", want mamba, mamba2 or falcon_mamba", where, type));
  }
  HOGNOSE_ASSIGN(const Sizes s, ReadSizes(fields, mamba2));
  std::vector<Row> rows;
  if (sequence) {
    rows = {{"encoder.weight", {s.d, sequence->inputs}, Initial::kUniform, sequence->inputs},
            {"encoder.bias", {s.d}, Initial::kZeros},
            {"head.weight", {sequence->outputs, s.d}, Initial::kUniform, s.d},
            {"head.bias", {sequence->outputs}, Initial::kZeros}};
  } else {
    HOGNOSE_ASSIGN(const size_t vocab, Need(fields, "vocab_size"));
    const bool tied = fields.Bool({"tie_word_embeddings"}).value_or(true);
    HOGNOSE_TRY(fields.status());
    rows = {{"backbone.embeddings.weight", {vocab, s.d}, Initial::kNormal}};
    if (!tied) rows.push_back({"lm_head.weight", {vocab, s.d}, Initial::kUniform, s.d});
  }
  rows.push_back({"backbone.norm_f.weight", {s.d}, Initial::kOnes});
  for (size_t layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = fmt::format("backbone.layers.{}.", layer);
    rows.push_back({prefix + "norm.weight", {s.d}, Initial::kOnes});
    for (Row& row : mamba2 ? Mamba2Mixer(s) : MambaMixer(s)) {
      row.name = prefix + "mixer." + row.name;
      rows.push_back(std::move(row));
    }
  }
  NewTensors out;
  for (const Row& row : rows) Fill(row, s.layers, seed, out);
  return out;
}

core::Result<NewTensors> LoraTensors(const core::TensorMap& tensors, const std::string& where,
                                     size_t rank, const std::vector<std::string>& targets,
                                     uint64_t seed) {
  NewTensors out;
  models::FloatStore none;
  const models::TensorLoader stored(tensors, none, where);
  for (const std::string& target : targets) {
    const std::string suffix = "." + target + ".weight";
    size_t matches = 0;
    for (const auto& [name, tensor] : tensors) {
      if (!name.ends_with(suffix) || tensor.rank != 2) continue;
      HOGNOSE_ASSIGN(const core::TensorView matrix, stored.Find(name));
      const size_t rows = matrix.shape[0], cols = matrix.shape[1];
      const std::string module = name.substr(0, name.size() - std::string(".weight").size());
      Fill({module + ".lora_A.weight", {rank, cols}, Initial::kUniform, cols}, 1, seed, out);
      Fill({module + ".lora_B.weight", {rows, rank}, Initial::kZeros}, 1, seed, out);
      ++matches;
    }
    if (matches != 0) continue;
    return core::Status::Failed(
        fmt::format("--lora-target: got \"{}\", want the name of a matrix of the model (in_proj, "
                    "out_proj, ...)",
                    target));
  }
  return out;
}

}  // namespace hognose::train
