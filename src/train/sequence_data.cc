#include "train/sequence_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hognose::train {
namespace {

using core::Result;
using core::Status;
using models::SequenceConfig;

// The class in a cell, below `classes`.
Result<size_t> ClassOf(const Table& table, size_t row, size_t column, size_t classes) {
  const double value = table.values[row * table.columns() + column];
  if (value >= 0 && value < static_cast<double>(classes) && value == std::floor(value)) {
    return static_cast<size_t>(value);
  }
  return Status::Failed(fmt::format("{}: column {}: got {}, want a class from 0 to {}",
                                    table.Where(row), ShowCell(table.names[column]), value,
                                    classes - 1));
}

}  // namespace

Result<SequenceConfig> MeasureSequence(const Table& table, const Split& split,
                                       const NewSequence& o) {
  SequenceConfig config;
  config.classification = o.classification;
  config.time = o.time;
  std::vector<size_t> features;
  for (size_t c = 0; c < table.columns(); ++c) {
    if (std::find(o.targets.begin(), o.targets.end(), c) != o.targets.end()) continue;
    features.push_back(c);
    config.features.push_back(table.names[c]);
  }
  for (const size_t c : o.targets) config.targets.push_back(table.names[c]);
  if (features.empty()) {
    return Status::Failed(
        fmt::format("{}: got no column besides targets and time, want features", table.path));
  }
  Normalization normal = MeasureNormalization(table, features, split);
  config.feature_mean = std::move(normal.mean);
  config.feature_scale = std::move(normal.scale);
  if (!o.classification) {
    normal = MeasureNormalization(table, o.targets, split);
    config.target_mean = std::move(normal.mean);
    config.target_scale = std::move(normal.scale);
    config.huber = o.huber;
    config.huber_delta = o.huber_delta;
    return config;
  }
  config.classes = o.classes;
  for (size_t r = 0; o.classes == 0 && r < split.training; ++r) {
    HOGNOSE_ASSIGN(const size_t label,
                   ClassOf(table, r, o.targets[0], SequenceConfig::kMostClasses));
    config.classes = std::max(config.classes, label + 1);
  }
  if (config.classes < 2) {
    return Status::Failed(fmt::format("{}: column {}: got class 0 only, want two classes at least",
                                      table.path, ShowCell(table.names[o.targets[0]])));
  }
  return config;
}

Result<SequenceData> SequenceData::Create(const Table& table, const Split& split,
                                          const SequenceConfig& config) {
  HOGNOSE_ASSIGN(const auto features, FindColumns(table, config.features, "features"));
  HOGNOSE_ASSIGN(const auto targets, FindColumns(table, config.targets, "targets"));
  const Normalization in = {config.feature_mean, config.feature_scale};
  const Normalization out = {config.target_mean, config.target_scale};
  SequenceData data;
  data.path_ = table.path;
  data.split_ = split;
  data.inputs_ = features.size();
  data.outputs_ = targets.size();
  data.features_.resize(table.rows * data.inputs_);
  if (!config.classification) data.values_.resize(table.rows * data.outputs_);
  std::vector<double> cells(std::max(data.inputs_, data.outputs_));
  for (size_t r = 0; r < table.rows; ++r) {
    const std::span<const double> row = table.row(r);
    const auto normalise = [&](std::span<const size_t> columns, const Normalization& how,
                               std::vector<float>& to) {
      for (size_t i = 0; i < columns.size(); ++i) cells[i] = row[columns[i]];
      how.Apply(std::span(cells).first(columns.size()),
                std::span(to).subspan(r * columns.size(), columns.size()));
    };
    normalise(features, in, data.features_);
    if (!config.classification) {
      normalise(targets, out, data.values_);
      continue;
    }
    HOGNOSE_ASSIGN(const size_t label, ClassOf(table, r, targets[0], config.classes));
    data.classes_.push_back(static_cast<int32_t>(label));
  }
  return data;
}

models::SequenceTargets SequenceData::Targets(size_t begin, size_t count) const {
  if (!classes_.empty())
    return {.values = {}, .classes = std::span(classes_).subspan(begin, count)};
  return {.values = {values_.data() + begin * outputs_, count, outputs_, outputs_}, .classes = {}};
}

}  // namespace hognose::train
