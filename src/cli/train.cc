// hognose train: a model from data.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "cli/command.h"
#include "cli/train_options.h"
#include "cli/train_run.h"
#include "core/cpu.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/find_nonfinite/find_nonfinite.h"
#include "models/fields.h"
#include "train/checkpoint.h"
#include "train/language_task.h"

namespace hognose::cli {
namespace {

namespace fs = std::filesystem;

// A model before training: an existing one's folder, or new tensors.
struct Start {
  core::Value config;
  std::string where;    // of the configuration, for messages
  std::string weights;  // of the tensors
  io::ModelFolder folder;
  train::NewTensors fresh;
  std::optional<io::Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> files;  // of the output folder

  const core::TensorMap& tensors() const {
    return folder.files.empty() ? fresh.tensors : folder.tensors;
  }
};

core::Status AddFile(const std::string& path, const std::string& name, Start& start) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  HOGNOSE_ASSIGN(std::string bytes, io::ReadFile(path));
  start.files.emplace_back(name, std::move(bytes));
  return {};
}

// With --resume the folder itself says what the model is.
core::Result<Start> OpenModel(const std::string& path) {
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
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json"}) {
    HOGNOSE_TRY(AddFile((fs::path(path) / name).string(), name, start));
  }
  if (!start.folder.tokenizer_path.empty()) {
    HOGNOSE_ASSIGN(start.tokenizer, io::Tokenizer::Load(start.folder.tokenizer_path));
  }
  return start;
}

core::Result<Start> NewModel(const TrainFlags& f) {
  Start start;
  start.where = start.weights = f.model_config.empty() ? "flags" : f.model_config;
  if (f.model_config.empty()) {
    HOGNOSE_ASSIGN(const train::ModelSizes sizes, SizesOf(f));
    HOGNOSE_ASSIGN(start.config, train::MakeConfig(sizes));
  } else {
    HOGNOSE_ASSIGN(const std::string text, io::ReadFile(f.model_config));
    HOGNOSE_ASSIGN(start.config, io::ParseJson(text, f.model_config));
    if (start.config.AsObject() == nullptr) {
      return core::Status::Failed(
          fmt::format("{}: got {}, want an object", f.model_config, start.config.TypeName()));
    }
  }
  if (!f.tokenizer.empty()) {
    HOGNOSE_ASSIGN(start.tokenizer, io::Tokenizer::Load(f.tokenizer));
    HOGNOSE_TRY(AddFile(f.tokenizer, "tokenizer.json", start));
  }
  if (start.config.Find("vocab_size") == nullptr || f.vocab) {
    if (!f.vocab && !start.tokenizer) {
      return core::Status::Usage("--vocab: got none and no --tokenizer, want the number of ids");
    }
    const size_t vocab = f.vocab ? *f.vocab : start.tokenizer->vocab_size();
    start.config = train::With(start.config, {{"vocab_size", vocab}});
  }
  HOGNOSE_ASSIGN(start.fresh, train::InitialTensors(start.config, start.where, f.seed));
  return start;
}

// The id that ends a text: what the model's configuration says, the first one of several.
std::optional<int32_t> EndOfText(const core::Value& config) {
  const core::Value* id = config.Find("eos_token_id");
  if (id != nullptr && id->AsArray() != nullptr && !id->AsArray()->empty()) {
    id = &id->AsArray()->front();
  }
  if (id == nullptr || id->AsInt() == nullptr) return std::nullopt;
  return static_cast<int32_t>(*id->AsInt());
}

// The least A_log for --max-spectral-radius, -infinity without it.
core::Result<double> LeastALog(const TrainFlags& f, const core::Value& config,
                               const std::string& where) {
  if (f.max_spectral_radius == 0.0) return -std::numeric_limits<double>::infinity();
  models::Fields fields(config, where);
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
  return train::LeastALog(f.max_spectral_radius, limits->first);
}

// Tensors that the model doesn't use stay as they are: one warning, or an error with --strict.
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

core::Status CheckFinite(core::Exec exec, const Start& start) {
  for (const auto& [name, tensor] : start.tensors()) {
    const auto bad = kernels::FindNonFinite(exec, tensor);
    if (!bad) continue;
    return core::Status::Failed(
        fmt::format("{}: {}: element {} is not a finite number", start.weights, name, *bad));
  }
  return {};
}

// A frozen A_log stays where it is: it must keep --max-spectral-radius already.
core::Status CheckFrozenBound(const train::Parameters& parameters, double min_a_log) {
  for (const train::Parameter& p : parameters.all()) {
    if (p.trained || !p.name.ends_with("A_log")) continue;
    const auto* first = p.view.As<float>();
    const float least = *std::min_element(first, first + p.view.elements());
    if (least >= min_a_log) continue;
    return core::Status::Usage(
        fmt::format("--freeze: {}: got {} frozen, want at least {} for --max-spectral-radius",
                    p.name, least, min_a_log));
  }
  return {};
}

core::Result<train::Parameters> MakeParameters(const TrainFlags& f, const Start& start,
                                               const std::vector<std::string>& unknown) {
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
  const bool adam = f.optimizer == "adamw";
  HOGNOSE_ASSIGN(auto parameters,
                 train::Parameters::Create(start.tensors(), start.weights,
                                           {.frozen = frozen,
                                            .precision = PrecisionOf(f),
                                            .second_moment = adam,
                                            .first_moment = adam || f.momentum > 0.0}));
  if (parameters.trained_elements() == 0) {
    return core::Status::Usage("--freeze: got patterns for every tensor, want some to train");
  }
  return parameters;
}

core::Result<train::TokenData> LoadTokens(const TrainFlags& f, const Start& start,
                                          const std::string& path, size_t vocab) {
  HOGNOSE_ASSIGN(const auto format, train::ParseDataFormat(f.data_format));
  return train::TokenData::Load(path, {.format = format,
                                       .tokenizer = start.tokenizer ? &*start.tokenizer : nullptr,
                                       .vocab = vocab,
                                       .end_of_text = EndOfText(start.config)});
}

// Whether there is something to --resume.
core::Status CheckRun(const std::string& out) {
  std::error_code error;
  if (fs::exists(fs::path(out) / train::kStateFile, error)) return {};
  return core::Status::Failed(fmt::format("{}: got no {} in it, want the folder of a run to resume",
                                          out, train::kStateFile));
}

core::Result<int> TrainLanguage(const TrainFlags& f) {
  const std::string source = f.resume ? f.out : f.init;
  if (f.resume) HOGNOSE_TRY(CheckRun(f.out));
  auto opened = source.empty() ? NewModel(f) : OpenModel(source);
  HOGNOSE_TRY(opened.status());
  Start start = std::move(*opened);
  if (!f.time_step_limit.empty() && !source.empty()) {
    HOGNOSE_ASSIGN(const train::ModelSizes sizes, SizesOf(f));
    const core::Value* type = start.config.Find("model_type");
    if (type == nullptr || type->AsString() == nullptr || *type->AsString() != "mamba2") {
      return core::Status::Usage(fmt::format(
          "--time-step-limit: got {}, want a configuration of model_type mamba2", start.where));
    }
    start.config =
        train::With(start.config,
                    {{"time_step_limit", core::Value::Array{core::Value(sizes.dt_limit->first),
                                                            core::Value(sizes.dt_limit->second)}}});
  }
  HOGNOSE_ASSIGN(const double min_a_log, LeastALog(f, start.config, start.where));
  HOGNOSE_ASSIGN(
      const auto pool,
      runtime::NewPool(f.common.threads.value_or(core::Cpu().physical_cores()), f.common.pin));
  HOGNOSE_ASSIGN(const auto model,
                 models::Build({start.config, start.where, start.tensors(), start.weights}));
  HOGNOSE_ASSIGN(auto parameters, MakeParameters(f, start, model.unknown_tensors));
  HOGNOSE_TRY(CheckFinite({*pool}, start));
  HOGNOSE_TRY(CheckFrozenBound(parameters, min_a_log));
  HOGNOSE_ASSIGN(const auto data, LoadTokens(f, start, f.data, model.vocab));
  std::optional<train::TokenData> evaluation;
  if (!f.evaluation.empty()) {
    HOGNOSE_ASSIGN(evaluation, LoadTokens(f, start, f.evaluation, model.vocab));
  }
  HOGNOSE_ASSIGN(
      const auto task,
      train::LanguageTask::Create(
          {*pool}, start.config, start.where, data, evaluation ? &*evaluation : nullptr,
          {.order = f.order == "sequential" ? train::Order::kSequential : train::Order::kShuffled,
           .batch = f.batch,
           .accumulate = f.accumulate,
           .length = f.length,
           .steps = f.steps,
           .seed = f.seed,
           .checkpointing = f.checkpoint == "layer" ? models::Checkpointing::kLayer
                                                    : models::Checkpointing::kNone,
           .exact = f.precision == "f32"}));
  HOGNOSE_TRY(CheckUnknown(f, start, model.unknown_tensors));
  return RunTraining({.flags = f,
                      .exec = {*pool},
                      .task = *task,
                      .parameters = parameters,
                      .config = start.config,
                      .files = start.files,
                      .min_a_log = min_a_log,
                      .data_settings = {{"data", data.Digest()}}});
}

core::Result<int> Train(const TrainFlags& f) {
  HOGNOSE_TRY(CheckTrainFlags(f));
  return TrainLanguage(f);
}

}  // namespace

Runner AddTrain(CLI::App& app) {
  auto f = std::make_shared<TrainFlags>();
  AddTrainFlags(app, *f);
  return [f] { return Train(*f); };
}

}  // namespace hognose::cli
