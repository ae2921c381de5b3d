// What every task of `hognose train` begins with: a model's configuration and tensors.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/train_options.h"
#include "io/model_folder.h"
#include "io/tokenizer/tokenizer.h"
#include "train/new_model.h"
#include "train/parameters.h"

namespace hognose::cli {

// A model before training: an existing one's folder, or new tensors.
struct Start {
  core::Value config;
  std::string where;    // of the configuration, for messages
  std::string weights;  // of the tensors
  io::ModelFolder folder;
  train::NewTensors fresh;
  std::optional<io::Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> files;  // of the output folder
  train::NewTensors adapters;                              // of --lora-rank
  core::TensorMap with_adapters;                           // and the model's

  const core::TensorMap& tensors() const {
    if (!with_adapters.empty()) return with_adapters;
    return folder.files.empty() ? fresh.tensors : folder.tensors;
  }
};

// The folder of --resume or --init; empty: a new model. Adapters are resumed beside their model.
inline const std::string& SourceOf(const TrainFlags& f) {
  return f.resume && f.lora_rank == 0 ? f.out : f.init;
}
// That folder, with --time-step-limit set if it is given.
core::Result<Start> OpenStart(const TrainFlags& flags);
// A new model's configuration as sizes or --model-config say; no tensors yet.
core::Result<Start> ConfigureStart(const TrainFlags& flags);
// Adds the adapters of --lora-rank, if it is given.
core::Status AddAdapters(const TrainFlags& flags, Start& start);
// Adds the file, if there is one, to those of the output folder.
core::Status AddFile(const std::string& path, const std::string& name, Start& start);

// The least A_log for --max-spectral-radius, -infinity without it.
core::Result<double> LeastALog(const TrainFlags& flags, const Start& start);
// Everything that isn't frozen is trained; the model doesn't use the `unknown` tensors, which stay
// as they are. Takes the values of a new model from `start`: those of what is trained are not to be
// read there any more. Fails on numbers that aren't finite, and on a frozen A_log below
// `min_a_log`.
core::Result<train::Parameters> MakeParameters(const TrainFlags& flags, core::Exec exec,
                                               Start& start,
                                               const std::vector<std::string>& unknown,
                                               double min_a_log);
// One warning of tensors that the model doesn't use, or an error with --strict.
core::Status CheckUnknown(const TrainFlags& flags, const Start& start,
                          const std::vector<std::string>& unknown);

// --task regression and classification (train_sequence.cc).
core::Result<int> TrainSequence(const TrainFlags& flags);

}  // namespace hognose::cli
