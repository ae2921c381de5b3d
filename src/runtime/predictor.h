// Predictor: a sequence model's folder, opened and checked, and one sequence that it answers row by
// row.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "io/model_folder.h"
#include "models/normalization.h"
#include "models/sequence_model.h"
#include "runtime/model.h"

namespace hognose::runtime {

class Predictor {
 public:
  static constexpr size_t kPiece = 64;  // rows of a Predict

  // Everything is checked here, as in Model::Load. `options`: threads, pin, strict.
  static core::Result<std::unique_ptr<Predictor>> Load(const std::string& path,
                                                       const LoadOptions& options);

  const models::SequenceConfig& config() const { return model_.config; }
  const models::SequenceModel& model() const { return model_; }
  const io::ModelFolder& folder() const { return folder_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  size_t bytes() const { return workspace_->bytes() + state_.bytes(); }

  // The next rows of the sequence (at most kPiece): features [rows, F] in the units of the data, in
  // the order of config().features. out [rows, O]: the targets in their units, or the probability
  // of each class. The same bits for any split into calls.
  void Predict(std::span<const double> features, std::span<float> out);

  // Rows since the sequence began.
  uint64_t position() const { return position_; }
  core::Status WriteState(const std::string& path) const;
  // Refuses damage and other models' states before anything changes.
  core::Status ReadState(const std::string& path);

 private:
  Predictor() = default;

  io::ModelFolder folder_;
  models::SequenceModel model_;
  std::vector<std::string> warnings_;
  std::unique_ptr<core::ThreadPool> pool_;
  std::unique_ptr<models::Workspace> workspace_;  // holds a reference to the pool
  nn::State state_;
  uint64_t position_ = 0;
  models::Normalization features_, targets_;
  std::vector<float> x_, y_;    // [kPiece, F], [kPiece, O]
  std::vector<double> answer_;  // [O]
};

}  // namespace hognose::runtime
