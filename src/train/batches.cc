#include "train/batches.h"

#include <fmt/format.h>

#include <bit>

#include "core/check.h"
#include "core/rng.h"

namespace hognose::train {
namespace {

using core::Result;
using core::Status;

uint64_t Mix(uint64_t z) { return core::Mix(z + core::kMixStep); }

}  // namespace

size_t Permute(uint64_t seed, uint64_t epoch, size_t n, size_t index) {
  HOGNOSE_DCHECK(index < n);
  constexpr int kRounds = 8;  // halves of one or two bits need more rounds than wide ones
  // 4^half >= n. The network moves fewer than 4 n places, so a walk takes 4 steps on average.
  const int half = (std::bit_width(n - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = Mix(Mix(seed) ^ epoch);
  uint64_t x = index;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (Mix(key ^ Mix(right + (uint64_t{1} << 40) * round)) & mask);
      left = right;
      right = next;
    }
    x = left << half | right;
  } while (x >= n);
  return x;
}

Result<Batches> Batches::Create(const BatchData& data, const BatchOptions& options) {
  HOGNOSE_CHECK(options.batch > 0 && options.length > 0);
  Batches batches;
  batches.options_ = options;
  if (data.count > data.ahead) batches.windows_ = (data.count - data.ahead) / options.length;
  if (batches.windows_ == 0) {
    return Status::Failed(fmt::format("{}: got {} {}, want at least {} (a sequence of {}{})",
                                      data.path, data.count, data.unit, options.length + data.ahead,
                                      options.length,
                                      data.ahead == 0 ? "" : " and the target of its last"));
  }
  const size_t most = batches.windows_ / options.batch;
  if (options.order == Order::kSequential && options.steps > most) {
    return Status::Failed(fmt::format(
        "--steps: got {}, want at most {}: {} holds {} sequences of {} {}, a step reads {}",
        options.steps, most, data.path, batches.windows_, options.length, data.unit,
        options.batch));
  }
  return batches;
}

size_t Batches::Begin(size_t step, size_t row) const {
  HOGNOSE_DCHECK(row < options_.batch);
  const size_t index = step * options_.batch + row;
  if (options_.order == Order::kSequential) {
    HOGNOSE_CHECK(index < windows_);
    return index * options_.length;
  }
  return Permute(options_.seed, index / windows_, windows_, index % windows_) * options_.length;
}

}  // namespace hognose::train
