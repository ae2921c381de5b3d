#include "cli/train_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "cli/model_files.h"
#include "cli/options.h"
#include "codecs/decode.h"
#include "io/adapter.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/find_nonfinite/find_nonfinite.h"
#include "kernels/spectral_radius/spectral_radius.h"
#include "models/fields.h"
#include "train/checkpoint.h"

namespace hognose::cli {

core::Status AddFile(const std::string& path, const std::string& name, Start& start) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  HOGNOSE_ASSIGN(std::string bytes, io::ReadFile(path));
  start.files.emplace_back(name, std::move(bytes));
  return {};
}

core::Status AddAdapters(const TrainFlags& f, Start& start) {
  for (const auto& [name, tensor] : start.tensors()) {
    if (!name.ends_with(io::kLoraA) && !name.ends_with(io::kLoraB)) continue;
    return core::Status::Failed(fmt::format(
        "{}: {}: got an adapter's tensor, want a model without (hognose merge makes one)",
        start.weights, name));
  }
  if (f.lora_rank == 0) return {};
  HOGNOSE_ASSIGN(start.adapters, train::LoraTensors(start.tensors(), start.weights, f.lora_rank,
                                                    SplitAtCommas(f.lora_target), f.seed));
  start.with_adapters = start.tensors();
  start.with_adapters.insert(start.adapters.tensors.begin(), start.adapters.tensors.end());
  return {};
}

namespace {

// Whether there is something to --resume.
core::Status CheckRun(const std::string& out) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(out) / train::kStateFile, error)) return {};
  return core::Status::Failed(fmt::format("{}: got no {} in it, want the folder of a run to resume",
                                          out, train::kStateFile));
}

}  // namespace

core::Result<Start> OpenStart(const TrainFlags& f) {
  if (f.resume) HOGNOSE_TRY(CheckRun(f.out));
  const std::string& path = SourceOf(f);
  Start start;
  HOGNOSE_ASSIGN(start.folder, io::OpenModelFolder(path));
  start.config = start.folder.config;
  start.where = path + "/config.json";
  start.weights = start.folder.files.size() == 1 ? start.folder.files[0].path()
                                                 : path + "/model.safetensors.index.json";
  // What is written is f32, whatever was read.
  for (const char* name : {"torch_dtype", "dtype"}) {
    if (start.config.Find(name) == nullptr) continue;
    start.config = train::With(start.config, {{name, "float32"}});
  }
  HOGNOSE_ASSIGN(start.files, ReadModelFiles(path));
  if (!start.folder.tokenizer_path.empty()) {
    HOGNOSE_ASSIGN(start.tokenizer, io::Tokenizer::Load(start.folder.tokenizer_path));
  }
  if (f.time_step_limit.empty()) return start;
  HOGNOSE_ASSIGN(const train::ModelSizes sizes, SizesOf(f));
  const core::Value* type = start.config.Find("model_type");
  if (type == nullptr || type->AsString() == nullptr || *type->AsString() != "mamba2") {
    return core::Status::Usage(fmt::format(
        "--time-step-limit: got {}, want a configuration of model_type mamba2", start.where));
  }
  start.config = train::With(
      start.config, {{"time_step_limit", core::Value::Array{core::Value(sizes.dt_limit->first),
                                                            core::Value(sizes.dt_limit->second)}}});
  return start;
}

core::Result<Start> ConfigureStart(const TrainFlags& f) {
  Start start;
  start.where = start.weights = f.model_config.empty() ? "flags" : f.model_config;
  if (f.model_config.empty()) {
    HOGNOSE_ASSIGN(const train::ModelSizes sizes, SizesOf(f));
    HOGNOSE_ASSIGN(start.config, train::MakeConfig(sizes));
    return start;
  }
  HOGNOSE_ASSIGN(const std::string text, io::ReadFile(f.model_config));
  HOGNOSE_ASSIGN(start.config, io::ParseJson(text, f.model_config));
  if (start.config.AsObject() == nullptr) {
    return core::Status::Failed(
        fmt::format("{}: got {}, want an object", f.model_config, start.config.TypeName()));
  }
  return start;
}

core::Result<double> LeastALog(const TrainFlags& f, const Start& start) {
  if (f.max_spectral_radius == 0.0) return -std::numeric_limits<double>::infinity();
  models::Fields fields(start.config, start.where);
  const auto limits = fields.Limits({"time_step_limit"});
  const std::string type = fields.Text("model_type").value_or("");
  HOGNOSE_TRY(fields.status());
  if (type != "mamba2") {
    return core::Status::Usage(fmt::format(
        "--max-spectral-radius: got a model of type {}, want mamba2: Mamba-1 has no floor of dt, "
        "and without one no bound of A bounds exp(dt A)",
        type));
  }
  if (!limits || limits->first <= 0.0f) {
    return core::Status::Usage(
        "--max-spectral-radius: got no time_step_limit with a low end above 0 (--time-step-limit), "
        "want one: without a floor of dt no bound of A bounds exp(dt A)");
  }
  return kernels::LeastALog(f.max_spectral_radius, limits->first);
}

core::Status CheckUnknown(const TrainFlags& f, const Start& start,
                          const std::vector<std::string>& unknown) {
  if (unknown.empty()) return {};
  const std::string more =
      unknown.size() == 1 ? "" : fmt::format(" (and {} more)", unknown.size() - 1);
  const std::string message =
      fmt::format("{}: {}: unknown tensor{}", start.weights, unknown[0], more);
  if (f.common.strict) return core::Status::Failed(message + ", want none");
  Note(message + ", not trained");
  return {};
}

namespace {

// Gives a file's pages of a tensor back.
void DropPages(const Start& start, const core::TensorView& tensor) {
  for (const auto& file : start.folder.files) file.DropPages(tensor);
}

core::Status CheckFinite(core::Exec exec, const Start& start) {
  for (const auto& [name, tensor] : start.folder.tensors) {
    const auto bad = kernels::FindNonFinite(exec, tensor);
    if (bad) {
      return core::Status::Failed(
          fmt::format("{}: {}: element {} is not a finite number", start.weights, name, *bad));
    }
    DropPages(start, tensor);
  }
  return {};
}

// A frozen A_log stays where it is: it must keep --max-spectral-radius already.
core::Status CheckFrozenBound(const Start& start, const models::GradientMap& trained,
                              double min_a_log) {
  if (!std::isfinite(min_a_log)) return {};
  for (const auto& [name, tensor] : start.tensors()) {
    if (!name.ends_with("A_log") || trained.contains(name)) continue;
    if (!core::IsWeightFloat(tensor.dtype)) continue;  // not the model's
    std::vector<float> values(tensor.elements());
    codecs::Decode(tensor, 0, values);
    const auto least = std::min_element(values.begin(), values.end());
    if (least == values.end() || *least >= min_a_log) continue;
    return core::Status::Usage(
        fmt::format("--freeze: {}: got {} frozen, want at least {} for --max-spectral-radius", name,
                    *least, min_a_log));
  }
  return {};
}

}  // namespace

core::Result<train::Parameters> MakeParameters(const TrainFlags& f, core::Exec exec, Start& start,
                                               const std::vector<std::string>& unknown,
                                               double min_a_log) {
  const auto frozen = [&](std::string_view name) {
    return IsFrozen(f, name) || std::find(unknown.begin(), unknown.end(), name) != unknown.end();
  };
  for (const auto& pattern : f.freeze) {
    const auto matches = [&](const auto& tensor) {
      return tensor.first.find(pattern) != std::string::npos;
    };
    if (std::any_of(start.tensors().begin(), start.tensors().end(), matches)) continue;
    return core::Status::Failed(
        fmt::format("--freeze: got \"{}\", want a part of some tensor's name", pattern));
  }
  HOGNOSE_TRY(CheckFinite(exec, start));
  // The model is never in memory twice.
  const auto copied = [&](const core::TensorView& tensor) {
    DropPages(start, tensor);
    std::erase_if(start.fresh.memory, [&](const auto& m) { return m.data() == tensor.data; });
  };
  const bool adam = f.optimizer == "adamw";
  HOGNOSE_ASSIGN(auto parameters,
                 train::Parameters::Create(start.tensors(), start.weights,
                                           {.frozen = frozen,
                                            .copied = copied,
                                            .precision = PrecisionOf(f),
                                            .second_moment = adam,
                                            .first_moment = adam || f.momentum > 0.0}));
  if (parameters.trained_elements() == 0) {
    return core::Status::Usage("--freeze: got patterns for every tensor, want some to train");
  }
  HOGNOSE_TRY(CheckFrozenBound(start, parameters.gradient_map(), min_a_log));
  return parameters;
}

}  // namespace hognose::cli
