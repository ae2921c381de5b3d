// For kernel benchmarks: random operands and the bytes and operations of a call as counters.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

#include "core/rng.h"

namespace hognose::kernels {

inline std::vector<float> BenchValues(size_t size, double lo = -1.0, double hi = 1.0) {
  core::Rng rng(size);
  std::vector<float> values(size);
  for (auto& v : values) v = static_cast<float>(rng.Uniform(lo, hi));
  return values;
}

// Shown as bytes and operations per second.
inline void SetWork(benchmark::State& state, double bytes, double operations) {
  state.counters["bytes"] =
      benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["flop"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace hognose::kernels
