// SequenceTask: regression or classification of every row of a table from the rows up to it.
//
// Training cuts the training rows into windows of L, each from a zero state. Evaluation runs over
// the validation rows in the order of time, in windows of L too, but hands the state from window to
// window as a prediction does; only the first begins at zero.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "models/registry.h"
#include "models/sequence_model_pass.h"
#include "train/batches.h"
#include "train/sequence_data.h"
#include "train/task.h"

namespace hognose::train {

class SequenceTask : public Task {
 public:
  // `config` as in config.json, `where` its name for messages. Config and data must outlive the
  // task.
  static core::Result<std::unique_ptr<SequenceTask>> Create(core::Exec exec,
                                                            const core::Value& config,
                                                            const std::string& where,
                                                            const SequenceData& data,
                                                            const TaskOptions& options);

  core::Status Bind(const core::TensorMap& tensors,
                    std::span<const models::GradientMap> lanes) override;
  size_t lane_bytes() const override { return lanes_.front().pass->bytes(); }
  size_t rows() const override { return options_.batch * options_.accumulate; }
  size_t Targets(size_t step) override;
  double Row(size_t step, size_t row, float scale, size_t lane) override;
  bool has_evaluation() const override { return data_.split().validation != 0; }
  double Evaluate() override;
  size_t tokens_per_step() const override { return rows() * options_.length; }

 private:
  SequenceTask(core::Exec exec, const core::Value& config, const std::string& where,
               const SequenceData& data, Batches batches, const TaskOptions& options)
      : exec_(exec),
        config_(config),
        where_(where),
        data_(data),
        batches_(std::move(batches)),
        options_(options) {}

  core::Exec exec_;
  const core::Value& config_;
  std::string where_;
  const SequenceData& data_;
  Batches batches_;
  TaskOptions options_;
  struct Lane {
    std::optional<models::SequenceModel> model;
    std::optional<models::SequenceModelPass> pass;
  };
  std::vector<Lane> lanes_;
  nn::State before_, after_;  // of a window in evaluation
};

}  // namespace hognose::train
