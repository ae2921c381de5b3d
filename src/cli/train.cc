// hognose train: a model from data.
#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "cli/command.h"
#include "cli/train_options.h"
#include "cli/train_run.h"
#include "core/cpu.h"
#include "io/file.h"
#include "io/json.h"
#include "models/fields.h"
#include "train/checkpoint.h"
#include "train/language_task.h"

namespace hognose::cli {
namespace {

namespace fs = std::filesystem;

// A model before training: an existing one's folder, or new tensors.
struct Start {
  core::Value config;
  std::string where;  // of the configuration, for messages
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
  start.where = f.model_config.empty() ? "flags" : f.model_config;
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

// The id that ends a text: what the model's configuration says.
std::optional<int32_t> EndOfText(const core::Value& config) {
  const core::Value* id = config.Find("eos_token_id");
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

core::Result<train::Parameters> MakeParameters(const TrainFlags& f, const Start& start) {
  const auto frozen = [&](std::string_view name) { return IsFrozen(f, name); };
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
                 train::Parameters::Create(start.tensors(), start.where,
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

core::Result<int> TrainLanguage(const TrainFlags& f) {
  const std::string source = f.resume ? f.out : f.init;
  auto opened = source.empty() ? NewModel(f) : OpenModel(source);
  HOGNOSE_TRY(opened.status());
  Start start = std::move(*opened);
  if (!f.time_step_limit.empty() && !source.empty()) {
    HOGNOSE_ASSIGN(const train::ModelSizes sizes, SizesOf(f));
    start.config =
        train::With(start.config,
                    {{"time_step_limit", core::Value::Array{core::Value(sizes.dt_limit->first),
                                                            core::Value(sizes.dt_limit->second)}}});
  }
  HOGNOSE_ASSIGN(const double min_a_log, LeastALog(f, start.config, start.where));
  HOGNOSE_ASSIGN(
      const auto pool,
      runtime::NewPool(f.common.threads.value_or(core::Cpu().physical_cores()), f.common.pin));
  HOGNOSE_ASSIGN(auto parameters, MakeParameters(f, start));
  models::Checkpoint checkpoint{start.config, start.where, parameters.tensors(), start.where};
  HOGNOSE_ASSIGN(const auto model, models::Build(checkpoint));
  for (const auto& name : model.unknown_tensors) {
    Note(fmt::format("{}: unknown tensor {}, trained for nothing", start.where, name));
  }
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
  return RunTraining({.flags = f,
                      .exec = {*pool},
                      .task = *task,
                      .parameters = parameters,
                      .config = start.config,
                      .files = start.files,
                      .min_a_log = min_a_log});
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
