// The learning rate of each step: a pure function, so that a resumed run has no state of it.
//
//   warm-up, step < W:   peak (step + 1) / W
//   constant:            peak
//   cosine:              min + (peak - min) (1 + cos(pi (step - W) / (total - W))) / 2
//
// Steps count from 0. From step `total` on, which a run doesn't reach, cosine stays at min.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/status.h"

namespace hognose::train {

enum class ScheduleKind : uint8_t { kConstant, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 1e-3;
  double min = 0;
  size_t warmup = 0;  // W
  size_t total = 1;   // steps of the whole run; a resumed run has the same

  // 0 <= min <= peak, finite, peak above 0, W <= total. Errors name the flag.
  core::Status Check() const;
  double LearningRate(size_t step) const;
};

}  // namespace hognose::train
