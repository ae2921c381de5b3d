// The flags of `hognose train`, and what of them the bits of a run depend on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/value.h"
#include "train/new_model.h"
#include "train/parameters.h"
#include "train/task.h"
#include "train/trainer.h"

namespace hognose::cli {

struct TrainFlags {
  CommonOptions common;
  std::string task = "lm";
  // The model.
  std::string init, architecture = "mamba2", model_config, tokenizer;
  uint64_t width = 256, layers = 4, expand = 2, head_dim = 64, groups = 1, taps = 4;
  std::optional<uint64_t> states, dt_rank, vocab;
  std::string time_step_limit;
  // The data.
  std::string data, data_format = "auto", evaluation, order = "shuffled";
  // Of regression and classification; empty loss: mse, or what the model was trained with.
  std::vector<std::string> targets;
  std::string time, missing, loss;
  std::optional<uint64_t> classes;
  std::optional<double> huber_delta;
  double validation = 0.1;
  uint64_t batch = 8, length = 256, accumulate = 1;
  // The run.
  std::string out, log, gradients;
  uint64_t steps = 1000, seed = 0, eval_every = 0, save_every = 0;
  bool resume = false, force = false;
  // The optimiser.
  std::string optimizer = "adamw", schedule = "cosine";
  double lr = 1e-3, min_lr = 0.0, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0.0, clip = 1.0;
  uint64_t warmup = 0;
  double max_spectral_radius = 0.0, dropout = 0.0;  // 0: no bound
  std::vector<std::string> freeze;
  // Adapters.
  uint64_t lora_rank = 0;  // 0: none
  double lora_alpha = 16.0;
  std::string lora_target = "in_proj,out_proj";
  // How it is computed.
  std::string precision = "f32", checkpoint = "none", gradient_memory = "shared";
  std::string config;  // read before the flags are
};

// Adds all of them and --config FILE.toml.
void AddTrainFlags(CLI::App& app, TrainFlags& flags);
// What no single flag can tell. A usage error names the flag.
core::Status CheckTrainFlags(const TrainFlags& flags);

train::Precision PrecisionOf(const TrainFlags& flags);
train::Schedule ScheduleOf(const TrainFlags& flags);
train::OptimizerOptions OptimizerOf(const TrainFlags& flags);
train::TaskOptions TaskOptionsOf(const TrainFlags& flags);
core::Result<train::ModelSizes> SizesOf(const TrainFlags& flags);
// Everything that the bits of a run depend on besides data and model: what a resumed run must have
// again.
core::Value SettingsOf(const TrainFlags& flags);
// Whether --freeze holds a tensor: its name contains one of the patterns.
bool IsFrozen(const TrainFlags& flags, std::string_view name);

}  // namespace hognose::cli
