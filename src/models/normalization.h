// Normalization: how numbers that go into a sequence model and come out of it are scaled, in
// training and in prediction.
#pragma once

#include <span>
#include <vector>

#include "core/check.h"

namespace hognose::models {

// x -> (x - mean) / scale, a number each for the columns of a row. Computed in double, rounded
// once.
struct Normalization {
  std::vector<double> mean, scale;

  void Apply(std::span<const double> row, std::span<float> out) const {
    HOGNOSE_DCHECK(row.size() == mean.size() && out.size() == mean.size());
    for (size_t i = 0; i < row.size(); ++i) {
      out[i] = static_cast<float>((row[i] - mean[i]) / scale[i]);
    }
  }
  void Invert(std::span<const float> row, std::span<double> out) const {
    HOGNOSE_DCHECK(row.size() == mean.size() && out.size() == mean.size());
    for (size_t i = 0; i < row.size(); ++i) out[i] = row[i] * scale[i] + mean[i];
  }
};

}  // namespace hognose::models
