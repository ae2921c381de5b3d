#include "train/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

namespace hognose::train {

using core::Status;

Status Schedule::Check() const {
  if (!(peak > 0) || !std::isfinite(peak)) {
    return Status::Usage(fmt::format("--lr: got {}, want a finite number above 0", peak));
  }
  if (!(min >= 0 && min <= peak)) {
    return Status::Usage(fmt::format("--min-lr: got {}, want from 0 to --lr {}", min, peak));
  }
  if (warmup > total) {
    return Status::Usage(fmt::format("--warmup: got {}, want at most --steps {}", warmup, total));
  }
  return {};
}

double Schedule::LearningRate(size_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (kind == ScheduleKind::kConstant) return peak;
  if (step >= total) return min;
  const double part = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return min + 0.5 * (peak - min) * (1 + std::cos(std::numbers::pi * part));
}

}  // namespace hognose::train
