// SequenceConfig: what a sequence model's config.json says besides the sizes of its backbone: what
// goes in and out, by name, and how it is normalised.
//
//   "architectures": ["HognoseSequenceModel"], "model_type": "mamba2", ...,
//   "task": "regression" or "classification", "features": [names], "targets": [names],
//   "time": name, if the data have such a column, "feature_mean", "feature_scale": [numbers],
//   regression: "target_mean", "target_scale": [numbers], "loss": "mse" or "huber", "huber_delta"
//   classification: "classes": K; the only target's column holds 0 .. K-1
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/value.h"

namespace hognose::models {

inline constexpr std::string_view kSequenceClass = "HognoseSequenceModel";

// Whether a configuration says that it is a sequence model's.
bool IsSequenceConfig(const core::Value& config);

struct SequenceConfig {
  static constexpr size_t kMostClasses = 65536;

  bool classification = false;
  std::vector<std::string> features, targets;
  std::string time;                                 // empty: none
  std::vector<double> feature_mean, feature_scale;  // x -> (x - mean) / scale
  std::vector<double> target_mean, target_scale;    // regression
  size_t classes = 0;                               // classification
  bool huber = false;
  double huber_delta = 1.0;

  size_t outputs() const { return classification ? classes : targets.size(); }

  // `where` begins messages: "dir/config.json".
  static core::Result<SequenceConfig> Read(const core::Value& config, const std::string& where);
  // The fields of config.json.
  core::Value::Object Fields() const;
};

}  // namespace hognose::models
