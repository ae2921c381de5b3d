#include "cli/train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/options.h"
#include "models/sequence_config.h"

namespace hognose::cli {
namespace {

constexpr uint64_t kMany = uint64_t{1} << 40;
constexpr uint64_t kLargeSize = uint64_t{1} << 24;
constexpr double kLarge = 1e30;

void AddModelFlags(CLI::App& app, TrainFlags& f) {
  AddPath(app, "--init", &f.init, "Folder of a model to go on from; else a new one");
  AddChoice(app, "--arch", &f.architecture, {"mamba", "mamba2"}, "A new model's architecture");
  AddPath(app, "--model-config", &f.model_config, "A new model's config.json, in place of sizes");
  AddPath(app, "--tokenizer", &f.tokenizer, "A new model's tokenizer.json");
  AddInteger(app, "--vocab", &f.vocab, 1, kLargeSize, "Ids of a new model without tokenizer");
  AddInteger(app, "--d-model", &f.width, 1, kLargeSize, "Width");
  AddInteger(app, "--layers", &f.layers, 1, 10000, "Blocks");
  AddInteger(app, "--d-state", &f.states, 1, kLargeSize, "States (mamba 16, mamba2 128)");
  AddInteger(app, "--head-dim", &f.head_dim, 1, kLargeSize, "Width of a head (mamba2)");
  AddInteger(app, "--groups", &f.groups, 1, kLargeSize, "Groups of b and c (mamba2)");
  AddInteger(app, "--expand", &f.expand, 1, 1024, "Inner width over width");
  AddInteger(app, "--conv-width", &f.taps, 1, 1024, "Taps of the convolution");
  AddInteger(app, "--dt-rank", &f.dt_rank, 1, kLargeSize, "Rank of dt (mamba; width / 16)");
  AddPath(app, "--time-step-limit", &f.time_step_limit,
          "LOW,HIGH: bounds of dt, kept in config.json (mamba2)");
}

void AddDataFlags(CLI::App& app, TrainFlags& f) {
  AddChoice(app, "--task", &f.task, {"lm", "regression", "classification"}, "What is learned");
  AddPath(app, "--data", &f.data,
          "Ids (.npy or text), text, JSONL with \"text\", or a table (CSV, .npy)");
  AddChoice(app, "--data-format", &f.data_format, {"auto", "ids", "text", "jsonl", "csv", "npy"},
            "What --data and --eval hold");
  AddPath(app, "--eval", &f.evaluation, "Held-out data of the same kind");
  AddChoice(app, "--order", &f.order, {"shuffled", "sequential"}, "Of the sequences");
  AddInteger(app, "--batch-size", &f.batch, 1, kLargeSize, "Sequences of a batch");
  AddInteger(app, "--sequence-length", &f.length, 1, kLargeSize, "Tokens or rows of a sequence");
  AddInteger(app, "--accumulate", &f.accumulate, 1, kLargeSize, "Batches of a step");
}

void AddTableFlags(CLI::App& app, TrainFlags& f) {
  AddNames(app, "--target", &f.targets, "NAME[,NAME]: columns to predict; all others are features");
  AddPath(app, "--time", &f.time, "Column of the time, no feature");
  AddChoice(app, "--missing", &f.missing, {"refuse", "drop", "mean"},
            "Missing cells and outliers (default refuse)");
  AddReal(app, "--validation", &f.validation, 0.0, 0.99,
          "Part of the rows held out, the last ones");
  AddChoice(app, "--loss", &f.loss, {"mse", "huber"}, "Of a regression (default mse)");
  AddReal(app, "--huber-delta", &f.huber_delta, 1e-9, kLarge, "Where huber becomes linear (1)");
  AddInteger(app, "--classes", &f.classes, 2, models::SequenceConfig::kMostClasses,
             "Classes 0 .. K-1 (default: those of the training rows)");
}

void AddRunFlags(CLI::App& app, TrainFlags& f) {
  AddPath(app, "--out", &f.out, "Folder to write");
  AddInteger(app, "--steps", &f.steps, 1, kMany, "Steps of the run");
  AddInteger(app, "--seed", &f.seed, 0, UINT64_MAX, "Of initial values and order");
  AddInteger(app, "--eval-every", &f.eval_every, 0, kMany, "Steps between evaluations");
  AddInteger(app, "--save-every", &f.save_every, 0, kMany, "Steps between checkpoints");
  AddFlag(app, "--resume", &f.resume,
          "Go on from the checkpoint in --out; all other flags as before");
  AddFlag(app, "--force", &f.force, "Replace an existing folder");
  AddPath(app, "--log", &f.log, "JSON lines, one a step");
  AddPath(app, "--gradients", &f.gradients, "F32 safetensors of the first step's gradients");
}

void AddOptimizerFlags(CLI::App& app, TrainFlags& f) {
  AddChoice(app, "--optimizer", &f.optimizer, {"adamw", "sgd"}, "");
  AddReal(app, "--lr", &f.lr, 0.0, kLarge, "Learning rate at its peak");
  AddReal(app, "--min-lr", &f.min_lr, 0.0, kLarge, "Where cosine ends");
  AddChoice(app, "--schedule", &f.schedule, {"cosine", "constant"}, "After the warm-up");
  AddInteger(app, "--warmup", &f.warmup, 0, kMany, "Steps of rising learning rate");
  AddReal(app, "--weight-decay", &f.weight_decay, 0.0, kLarge, "");
  AddReal(app, "--beta1", &f.beta1, 0.0, 0.9999999, "AdamW");
  AddReal(app, "--beta2", &f.beta2, 0.0, 0.9999999, "AdamW");
  AddReal(app, "--eps", &f.eps, 0.0, kLarge, "AdamW");
  AddReal(app, "--momentum", &f.momentum, 0.0, 0.9999999, "SGD");
  AddReal(app, "--clip", &f.clip, 0.0, kLarge, "Largest norm of the gradients; 0: any");
  AddReal(app, "--dropout", &f.dropout, 0.0, 0.99,
          "Share of the embedding and of what each block adds that is dropped");
  AddReal(app, "--max-spectral-radius", &f.max_spectral_radius, 0.0, 1.0,
          "Bound of every decay exp(dt A); needs a time step limit above 0");
  AddTexts(app, "--freeze", &f.freeze, "Tensors whose name contains this stay as they are");
}

void AddLoraFlags(CLI::App& app, TrainFlags& f) {
  AddInteger(app, "--lora-rank", &f.lora_rank, 0, kLargeSize,
             "Train adapters of this rank, nothing else; 0: the model itself");
  AddReal(app, "--lora-alpha", &f.lora_alpha, 0.0, kLarge, "Adapters count alpha / rank");
  AddPath(app, "--lora-target", &f.lora_target, "Modules with adapters, between commas");
}

}  // namespace

void AddTrainFlags(CLI::App& app, TrainFlags& f) {
  AddModelFlags(app, f);
  AddDataFlags(app, f);
  AddTableFlags(app, f);
  AddRunFlags(app, f);
  AddOptimizerFlags(app, f);
  AddLoraFlags(app, f);
  AddChoice(app, "--precision", &f.precision, {"f32", "bf16", "f16"}, "Of matrix products");
  AddChoice(app, "--checkpoint", &f.checkpoint, {"none", "layer"},
            "layer: less memory, each block's forward pass twice");
  AddChoice(app, "--gradient-memory", &f.gradient_memory, {"shared"},
            "One buffer, to which sequences add in their order");
  AddPath(app, "--config", &f.config, "TOML file of flags by their long names");
  AddCommon(app, f.common);
}

namespace {

// Flags of the one kind of task, given to the other.
core::Status CheckTaskFlags(const TrainFlags& f) {
  const bool lm = f.task == "lm";
  const std::pair<const char*, bool> given[] = {
      {"--target", lm && !f.targets.empty()},       {"--time", lm && !f.time.empty()},
      {"--missing", lm && !f.missing.empty()},      {"--loss", lm && !f.loss.empty()},
      {"--huber-delta", lm && f.huber_delta},       {"--classes", lm && f.classes},
      {"--tokenizer", !lm && !f.tokenizer.empty()}, {"--vocab", !lm && f.vocab},
      {"--eval", !lm && !f.evaluation.empty()}};
  for (const auto& [flag, wrong] : given) {
    if (!wrong) continue;
    return core::Status::Usage(
        fmt::format("{}: got it with --task {}, want it {}", flag, f.task,
                    lm ? "with regression or classification only" : "with lm only"));
  }
  if (lm) return {};
  if (f.targets.empty() && f.init.empty() && !f.resume) {
    return core::Status::Usage("--target: got none, want a column of --data");
  }
  const bool regression = f.task == "regression";
  if (regression && f.classes) {
    return core::Status::Usage("--classes: got it with --task regression, want classification");
  }
  if (!regression && (!f.loss.empty() || f.huber_delta)) {
    return core::Status::Usage(fmt::format("{}: got it with --task classification, want regression",
                                           f.loss.empty() ? "--huber-delta" : "--loss"));
  }
  if (!regression && f.targets.size() > 1) {
    return core::Status::Usage("--target: got several, want one column of classes");
  }
  return {};
}

}  // namespace

core::Status CheckTrainFlags(const TrainFlags& f) {
  if (f.data.empty()) return core::Status::Usage("--data: got none, want a file");
  if (f.out.empty()) return core::Status::Usage("--out: got none, want a folder to write");
  if (f.resume && f.force)
    return core::Status::Usage("--force: got --resume too, want one of them");
  HOGNOSE_TRY(CheckTaskFlags(f));
  if (!f.init.empty() && !f.model_config.empty()) {
    return core::Status::Usage("--model-config: got --init too, want one of them");
  }
  if (f.eval_every != 0 && f.evaluation.empty() && f.task == "lm") {
    return core::Status::Usage("--eval-every: got no --eval, want held-out data");
  }
  if (f.lora_rank != 0 && (f.init.empty() || f.task != "lm")) {
    return core::Status::Usage("--lora-rank: got no --init of a language model, want one");
  }
  if (f.optimizer == "adamw" && f.eps == 0.0) {
    return core::Status::Usage(
        "--eps: got 0, want a number above it: 0 / 0 where nothing is learned");
  }
  if (f.max_spectral_radius == 1.0) {
    return core::Status::Usage("--max-spectral-radius: got 1, want a number below it");
  }
  return ScheduleOf(f).Check();
}

train::Precision PrecisionOf(const TrainFlags& f) {
  if (f.precision == "f16") return train::Precision::kF16;
  return f.precision == "bf16" ? train::Precision::kBF16 : train::Precision::kF32;
}

train::Schedule ScheduleOf(const TrainFlags& f) {
  return {.kind = f.schedule == "cosine" ? train::ScheduleKind::kCosine
                                         : train::ScheduleKind::kConstant,
          .peak = f.lr,
          .min = f.min_lr,
          .warmup = f.warmup,
          .total = f.steps};
}

train::OptimizerOptions OptimizerOf(const TrainFlags& f) {
  return {.kind = f.optimizer == "sgd" ? train::OptimizerKind::kSgd : train::OptimizerKind::kAdamW,
          .beta1 = f.beta1,
          .beta2 = f.beta2,
          .eps = f.eps,
          .momentum = f.momentum,
          .weight_decay = f.weight_decay,
          .clip = f.clip};
}

train::TaskOptions TaskOptionsOf(const TrainFlags& f) {
  const bool layers = f.checkpoint == "layer";
  train::TaskOptions o = {
      .order = f.order == "sequential" ? train::Order::kSequential : train::Order::kShuffled,
      .batch = f.batch,
      .accumulate = f.accumulate,
      .length = f.length,
      .steps = f.steps,
      .seed = f.seed,
      .checkpointing = layers ? models::Checkpointing::kLayer : models::Checkpointing::kNone,
      .exact = f.precision == "f32",
      .half = f.precision == "f16",
      .dropout = static_cast<float>(f.dropout)};
  if (f.lora_rank != 0) {
    o.adapter_scale = static_cast<float>(f.lora_alpha / static_cast<double>(f.lora_rank));
  }
  return o;
}

core::Result<train::ModelSizes> SizesOf(const TrainFlags& f) {
  train::ModelSizes s{.architecture = f.architecture,
                      .width = f.width,
                      .layers = f.layers,
                      .expand = f.expand,
                      .states = f.states.value_or(0),
                      .head_dim = f.head_dim,
                      .groups = f.groups,
                      .taps = f.taps,
                      .dt_rank = f.dt_rank.value_or(0)};
  if (f.time_step_limit.empty()) return s;
  const char* const end = f.time_step_limit.data() + f.time_step_limit.size();
  double low = 0.0, high = 0.0;
  const auto first = std::from_chars(f.time_step_limit.data(), end, low);
  bool good = first.ec == std::errc() && first.ptr != end && *first.ptr == ',';
  if (good) {
    const auto second = std::from_chars(first.ptr + 1, end, high);
    good = second.ec == std::errc() && second.ptr == end && low >= 0.0 && low < high;
  }
  if (!good) {
    return core::Status::Usage(fmt::format(
        "--time-step-limit: got \"{}\", want LOW,HIGH with 0 <= LOW < HIGH", f.time_step_limit));
  }
  s.dt_limit = {low, high};
  return s;
}

namespace {

core::Value Texts(const std::vector<std::string>& texts) {
  return core::Value::Array(texts.begin(), texts.end());
}

}  // namespace

core::Value SettingsOf(const TrainFlags& f) {
  core::Value::Object settings = {
      {"task", f.task},
      {"order", f.order},
      {"batch-size", f.batch},
      {"sequence-length", f.length},
      {"accumulate", f.accumulate},
      {"steps", f.steps},
      {"seed", fmt::format("{}", f.seed)},
      {"optimizer", f.optimizer},
      {"lr", f.lr},
      {"min-lr", f.min_lr},
      {"schedule", f.schedule},
      {"warmup", f.warmup},
      {"weight-decay", f.weight_decay},
      {"beta1", f.beta1},
      {"beta2", f.beta2},
      {"eps", f.eps},
      {"momentum", f.momentum},
      {"clip", f.clip},
      {"max-spectral-radius", f.max_spectral_radius},
      {"time-step-limit", f.time_step_limit},
      {"freeze", Texts(f.freeze)},
      {"precision", f.precision},
  };
  if (f.dropout != 0.0) settings.emplace_back("dropout", f.dropout);
  if (f.lora_rank != 0) {
    settings.emplace_back("lora-rank", f.lora_rank);
    settings.emplace_back("lora-alpha", f.lora_alpha);
    settings.emplace_back("lora-target", f.lora_target);
  }
  if (f.task == "lm") return settings;
  // What config.json says (columns, loss) is checked against the flags when it is read.
  settings.emplace_back("missing", f.missing.empty() ? "refuse" : f.missing);
  settings.emplace_back("validation", f.validation);
  return settings;
}

// With adapters everything else is frozen.
bool IsFrozen(const TrainFlags& f, std::string_view name) {
  if (f.lora_rank != 0 && name.find(".lora_") == std::string_view::npos) return true;
  return std::any_of(f.freeze.begin(), f.freeze.end(), [&](const std::string& pattern) {
    return name.find(pattern) != std::string_view::npos;
  });
}

}  // namespace hognose::cli
