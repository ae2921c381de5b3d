// LanguageTask: next-token prediction over a stream of ids.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "models/language_model_pass.h"
#include "models/registry.h"
#include "train/batches.h"
#include "train/task.h"
#include "train/token_data.h"

namespace hognose::train {

struct LanguageTaskOptions {
  Order order = Order::kShuffled;
  size_t batch = 1;       // rows of one batch
  size_t accumulate = 1;  // batches of a step
  size_t length = 1;      // L
  size_t steps = 1;
  uint64_t seed = 0;
  models::Checkpointing checkpointing = models::Checkpointing::kNone;
  bool exact = true;           // products of the forward pass in f32
  float adapter_scale = 1.0f;  // of adapters among the tensors
};

class LanguageTask : public Task {
 public:
  // `config` as in config.json, `where` its name for messages. The data must outlive the task;
  // `evaluation` may be null.
  static core::Result<std::unique_ptr<LanguageTask>> Create(
      core::Exec exec, const core::Value& config, const std::string& where, const TokenData& data,
      const TokenData* evaluation, const LanguageTaskOptions& options);

  core::Status Bind(const core::TensorMap& tensors, const models::GradientMap& gradients) override;
  size_t rows() const override { return options_.batch * options_.accumulate; }
  size_t Targets(size_t step) override;
  double Row(size_t step, size_t row, float scale) override;
  bool has_evaluation() const override { return evaluation_ != nullptr; }
  double Evaluate() override;
  size_t tokens_per_step() const override { return rows() * options_.length; }

 private:
  LanguageTask(core::Exec exec, const core::Value& config, const std::string& where,
               const TokenData& data, const TokenData* evaluation, Batches batches,
               const LanguageTaskOptions& options);
  // ids_, targets_ and pieces_ of the window at `begin`; fewer than L at the end of the data.
  void Fill(const TokenData& data, size_t begin, size_t length);

  core::Exec exec_;
  const core::Value& config_;
  std::string where_;
  const TokenData& data_;
  const TokenData* evaluation_;
  Batches batches_;
  LanguageTaskOptions options_;
  std::optional<models::LanguageModel> model_;
  std::optional<models::LanguageModelPass> pass_;
  std::vector<int32_t> window_;  // L + 1
  std::vector<models::Piece> pieces_;
};

}  // namespace hognose::train
