// The loop of a training run around a train::Trainer: folder, log, progress, evaluation,
// checkpoints, Ctrl-C. The same for every task.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/train_options.h"
#include "io/adapter.h"
#include "train/parameters.h"
#include "train/task.h"

namespace hognose::cli {

struct TrainRun {
  const TrainFlags& flags;
  core::Exec exec;
  train::Task& task;
  train::Parameters& parameters;
  // Of the model; written as config.json.
  core::Value config;
  // Names and bytes of the other files of the folder (tokenizer.json, ...).
  std::vector<std::pair<std::string, std::string>> files;
  double min_a_log;
  std::string_view unit = "tokens";  // of speeds
  // What a resumed run must have again besides the flags' settings: its data.
  core::Value::Object data_settings = {};
  // Adapters are trained: what adapter_config.json says, in place of the model's files.
  std::optional<io::LoraOptions> lora = {};
  std::string note = {};  // about the data, for people, once the run has begun
};

// Trains from the start, or from the checkpoint with --resume, and returns the exit code.
core::Result<int> RunTraining(const TrainRun& run);

}  // namespace hognose::cli
