// LanguageTask: next-token prediction over a stream of ids.
//
// Documents of a stream (JSONL) are trained as if each were alone: its state begins empty, and its
// last token, the end-of-text id where there is one, has no target: what follows it belongs to the
// next document, which nothing here announces. So nothing predicts the first token of a document,
// and the end-of-text id is learned as a target only.
//
// Held-out loss: windows of L tokens, each from an empty state, the last one shorter; the mean over
// all targets. Data of at most L + 1 tokens are one window: then it is what scoring them gives.
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

class LanguageTask : public Task {
 public:
  // `config` as in config.json, `where` its name for messages. The data must outlive the task;
  // `evaluation` may be null.
  static core::Result<std::unique_ptr<LanguageTask>> Create(
      core::Exec exec, const core::Value& config, const std::string& where, const TokenData& data,
      const TokenData* evaluation, const TaskOptions& options);

  core::Status Bind(const core::TensorMap& tensors,
                    std::span<const models::GradientMap> lanes) override;
  size_t lane_bytes() const override { return lanes_.front().pass->bytes(); }
  size_t rows() const override { return options_.batch * options_.accumulate; }
  size_t Targets(size_t step) override;
  double Row(size_t step, size_t row, float scale, size_t lane) override;
  bool has_evaluation() const override { return evaluation_ != nullptr; }
  double Evaluate() override;
  size_t tokens_per_step() const override { return rows() * options_.length; }

 private:
  LanguageTask(core::Exec exec, const core::Value& config, const std::string& where,
               const TokenData& data, const TokenData* evaluation, Batches batches,
               const TaskOptions& options);
  struct Lane {
    std::optional<models::LanguageModel> model;
    std::optional<models::LanguageModelPass> pass;
    std::vector<int32_t> tokens;  // L + 1
    std::vector<int32_t> targets;
    std::vector<models::Piece> pieces;

    // The window at `begin`; fewer than L at the end of the data.
    void Fill(const TokenData& data, size_t begin, size_t length);
    std::span<const int32_t> ids() const { return std::span(tokens).first(targets.size()); }
  };

  core::Exec exec_;
  const core::Value& config_;
  std::string where_;
  const TokenData& data_;
  const TokenData* evaluation_;
  Batches batches_;
  TaskOptions options_;
  std::vector<Lane> lanes_;
};

}  // namespace hognose::train
