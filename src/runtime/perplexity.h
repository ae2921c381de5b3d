// How well a model predicts a given text.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "runtime/session.h"

namespace hognose::runtime {

// The mean over all predicted tokens of -log p(token), natural logarithm.
class NllSum {
 public:
  // `logits` after the token before `id`. An id outside the logits counts nothing.
  void Add(std::span<const float> logits, int32_t id);
  size_t targets() const { return targets_; }
  double mean() const { return sum_ / static_cast<double>(targets_); }

 private:
  double sum_ = 0.0;
  size_t targets_ = 0;
};

// Of all ids but the first, from a new session's start; false from `progress` stops with what was
// seen.
core::Result<NllSum> MeasureNll(Session& session, std::span<const int32_t> ids,
                                core::FunctionRef<bool(size_t done)> progress);

}  // namespace hognose::runtime
