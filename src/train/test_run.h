// A small training run in memory, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/thread_pool.h"
#include "io/model_folder.h"
#include "io/test_util.h"
#include "train/language_task.h"
#include "train/parameters.h"
#include "train/trainer.h"

namespace hognose::train {

inline std::string FixturePath(std::string_view name) {
  return HOGNOSE_SOURCE_DIR "/tests/fixtures/models/" + std::string(name);
}

inline io::ModelFolder OpenFixture(std::string_view name) {
  auto folder = io::OpenModelFolder(FixturePath(name));
  EXPECT_TRUE(folder.ok()) << folder.status().message();
  return std::move(*folder);
}

// `count` ids below `vocab`, as text.
inline std::string RandomIds(uint64_t seed, size_t count, size_t vocab) {
  core::Rng rng(seed);
  std::string text;
  for (size_t i = 0; i < count; ++i) text += std::to_string(rng.Below(vocab)) + " ";
  return text;
}

inline Parameters MakeParameters(const core::TensorMap& tensors,
                                 const ParameterOptions& options = {}) {
  auto parameters = Parameters::Create(tensors, "model.safetensors", options);
  EXPECT_TRUE(parameters.ok()) << parameters.status().message();
  return std::move(*parameters);
}

struct RunOptions {
  std::string model = "mamba2_basic";  // a fixture
  TaskOptions task = {.batch = 2, .length = 12, .steps = 8, .seed = 3};
  TrainerOptions trainer = {.optimizer = {.weight_decay = 0.1, .clip = 1.0},
                            .schedule = {.peak = 1e-2, .total = 8}};
  ParameterOptions parameters = {};
  size_t threads = 1;
};

// A fixture's model on a file of data.
class TestRun {
 public:
  explicit TestRun(const std::string& data_path, const RunOptions& o,
                   const TokenOptions& tokens = {.vocab = 48})
      : pool_(o.threads),
        folder_(OpenFixture(o.model)),
        parameters_(MakeParameters(folder_.tensors, o.parameters)) {
    auto data = TokenData::Load(data_path, tokens);
    EXPECT_TRUE(data.ok()) << data.status().message();
    data_.emplace(std::move(*data));
    auto task =
        LanguageTask::Create({pool_}, folder_.config, "config.json", *data_, &*data_, o.task);
    EXPECT_TRUE(task.ok()) << task.status().message();
    task_ = std::move(*task);
    trainer_.emplace(core::Exec{pool_}, *task_, parameters_, o.trainer);
    EXPECT_TRUE(trainer_->Bind().ok());
  }

  StepResult Step() {
    auto result = trainer_->Step();
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : StepResult{};
  }
  std::vector<double> Losses(size_t steps) {
    std::vector<double> losses;
    for (size_t i = 0; i < steps; ++i) losses.push_back(Step().loss);
    return losses;
  }
  std::vector<float> Values() const { return Copy(parameters_.values()); }
  std::vector<float> Gradients() const { return Copy(parameters_.gradients()); }

  Parameters& parameters() { return parameters_; }
  Trainer& trainer() { return *trainer_; }
  LanguageTask& task() { return *task_; }
  const io::ModelFolder& folder() const { return folder_; }

 private:
  static std::vector<float> Copy(core::Vec<float> v) { return {v.data, v.data + v.size}; }

  core::ThreadPool pool_;
  io::ModelFolder folder_;
  Parameters parameters_;
  std::optional<TokenData> data_;
  std::unique_ptr<LanguageTask> task_;
  std::optional<Trainer> trainer_;
};

}  // namespace hognose::train
