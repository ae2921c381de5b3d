// hognose train: a model from data.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/train_options.h"
#include "cli/train_run.h"
#include "cli/train_start.h"
#include "train/language_task.h"

namespace hognose::cli {
namespace {

core::Result<Start> NewModel(const TrainFlags& f) {
  HOGNOSE_ASSIGN(Start start, ConfigureStart(f));
  if (!f.tokenizer.empty()) {
    HOGNOSE_ASSIGN(start.tokenizer, io::Tokenizer::Load(f.tokenizer));
    HOGNOSE_TRY(AddFile(f.tokenizer, "tokenizer.json", start));
    // What most tokenizers call the end of a text; --model-config may say another.
    const auto end = start.tokenizer->Find("<|endoftext|>");
    if (end && start.config.Find("eos_token_id") == nullptr) {
      start.config = train::With(start.config, {{"eos_token_id", *end}});
    }
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

core::Result<train::TokenData> LoadTokens(const TrainFlags& f, const Start& start,
                                          const std::string& path, size_t vocab) {
  HOGNOSE_ASSIGN(const auto format, train::ParseDataFormat(f.data_format));
  return train::TokenData::Load(path, {.format = format,
                                       .tokenizer = start.tokenizer ? &*start.tokenizer : nullptr,
                                       .vocab = vocab,
                                       .end_of_text = EndOfText(start.config)});
}

// An adapter that no product takes would be trained by nothing and be in no file.
core::Status CheckTargets(const Start& start, const std::vector<std::string>& unknown) {
  for (const std::string& name : unknown) {
    if (!start.adapters.tensors.contains(name)) continue;
    return core::Status::Failed(
        fmt::format("--lora-target: got {}, want matrices of the blocks (in_proj, out_proj, ...)",
                    name.substr(0, name.size() - io::kLoraA.size())));
  }
  return {};
}

core::Result<int> TrainLanguage(const TrainFlags& f) {
  auto opened = SourceOf(f).empty() ? NewModel(f) : OpenStart(f);
  HOGNOSE_TRY(opened.status());
  Start start = std::move(*opened);
  HOGNOSE_TRY(AddAdapters(f, start));
  HOGNOSE_ASSIGN(const double min_a_log, LeastALog(f, start));
  HOGNOSE_ASSIGN(const auto pool, runtime::NewPool(f.common.threads.value_or(0), f.common.pin));
  HOGNOSE_ASSIGN(const auto model, models::Build({.config = start.config,
                                                  .config_name = start.where,
                                                  .tensors = start.tensors(),
                                                  .weights_name = start.weights}));
  HOGNOSE_TRY(CheckTargets(start, model.unknown_tensors));
  HOGNOSE_ASSIGN(auto parameters,
                 MakeParameters(f, {*pool}, start, model.unknown_tensors, min_a_log));
  HOGNOSE_ASSIGN(const auto data, LoadTokens(f, start, f.data, model.vocab));
  std::optional<train::TokenData> evaluation;
  if (!f.evaluation.empty()) {
    HOGNOSE_ASSIGN(evaluation, LoadTokens(f, start, f.evaluation, model.vocab));
  }
  HOGNOSE_ASSIGN(const auto task, train::LanguageTask::Create(
                                      {*pool}, start.config, start.where, data,
                                      evaluation ? &*evaluation : nullptr, TaskOptionsOf(f)));
  core::Value::Object data_settings = {{"data", data.Digest()}};
  std::optional<io::LoraOptions> lora;
  if (f.lora_rank != 0) {
    data_settings.emplace_back("init", runtime::DigestOf(start.folder));  // --out does not hold it
    lora = {.rank = f.lora_rank,
            .alpha = f.lora_alpha,
            .targets = SplitAtCommas(f.lora_target),
            .base = f.init};
  }
  HOGNOSE_TRY(CheckUnknown(f, start, model.unknown_tensors));
  return RunTraining({.flags = f,
                      .exec = {*pool},
                      .task = *task,
                      .parameters = parameters,
                      .config = start.config,
                      .files = start.files,
                      .min_a_log = min_a_log,
                      .data_settings = data_settings,
                      .lora = lora});
}

core::Result<int> Train(const TrainFlags& f) {
  HOGNOSE_TRY(CheckTrainFlags(f));
  return f.task == "lm" ? TrainLanguage(f) : TrainSequence(f);
}

}  // namespace

Runner AddTrain(CLI::App& app) {
  auto f = std::make_shared<TrainFlags>();
  AddTrainFlags(app, *f);
  return [f] { return Train(*f); };
}

}  // namespace hognose::cli
