// What a sequence model trains on: the rows of a clean table as normalised numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "models/sequence_config.h"
#include "models/sequence_model_pass.h"
#include "train/clean_table.h"
#include "train/table.h"

namespace hognose::train {

// The configuration of a new model for a table: features are all columns that are no targets.
// Whatever is measured (normalisation, the number of classes) is so over the training rows.
struct NewSequence {
  bool classification = false;
  std::span<const size_t> targets = {};  // columns of the table
  std::string time = {};
  size_t classes = 0;  // 0: the largest one of the training rows and those below it
  bool huber = false;
  double huber_delta = 1.0;
};
core::Result<models::SequenceConfig> MeasureSequence(const Table& table, const Split& split,
                                                     const NewSequence& options);

// Rows in the order of time; the first ones train, the last ones validate.
class SequenceData {
 public:
  // Normalised as `config` says; columns are found by its names. Fails on classes that it hasn't.
  static core::Result<SequenceData> Create(const Table& table, const Split& split,
                                           const models::SequenceConfig& config);

  const std::string& path() const { return path_; }
  const Split& split() const { return split_; }
  core::Mat<const float> Features(size_t begin, size_t count) const {
    return {features_.data() + begin * inputs_, count, inputs_, inputs_};
  }
  models::SequenceTargets Targets(size_t begin, size_t count) const;
  // What a loss over rows is the mean over: numbers a row.
  size_t targets_per_row() const { return outputs_; }

 private:
  std::string path_;
  Split split_;
  size_t inputs_ = 0, outputs_ = 0;  // columns; a class is one
  std::vector<float> features_;      // [rows, inputs]
  std::vector<float> values_;        // [rows, outputs]; regression
  std::vector<int32_t> classes_;     // [rows]; classification
};

}  // namespace hognose::train
