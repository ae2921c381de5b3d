#include <algorithm>
#include <bit>

#include "kernels/scan/scan_piece.h"

namespace hognose::kernels {
namespace {

using internal::CeilDiv;

// Nanoseconds of one thread with its operands in the second-level cache.
struct Work {
  double scan, total, tree;
};
// 1, 2, 4, 8 channels without gaps: of an element. Others: of 16 channels or what is left of them.
struct OpWork {
  Work few[4];
  Work row;
};

// Measured with scan_bench: one thread of an AMD EPYC 9004 (Zen 4), AVX-512, lengths of 16,384.
constexpr OpWork kWork[] = {
    /* kLinear */ {{{0.30, 0.13, 0.80}, {0.23, 0.23, 5.4}, {0.18, 0.17, 2.7}, {0.13, 0.13, 1.5}},
                   {1.9, 1.9, 10.0}},
    /* kSum */
    {{{0.20, 0.04, 0.52}, {0.15, 0.05, 4.5}, {0.10, 0.05, 2.3}, {0.08, 0.05, 1.2}},
     {1.3, 1.1, 6.5}},
    /* kProduct */
    {{{0.17, 0.04, 0.50}, {0.13, 0.05, 4.7}, {0.10, 0.05, 2.4}, {0.08, 0.05, 1.2}},
     {1.3, 1.1, 6.5}},
    /* kMax */
    {{{0.33, 0.07, 0.54}, {0.26, 0.07, 4.7}, {0.17, 0.06, 2.4}, {0.15, 0.06, 1.2}},
     {1.5, 1.4, 6.5}},
};

// Nanoseconds of handing work to several threads and waiting for them; of a task. What threads lose
// that wait for each other in the chain of chunks.
constexpr double kRound = 700.0, kTask = 25.0, kChain = 1.6;
// Bytes a nanosecond from memory, of one thread and of all, where a call's operands exceed the
// last-level cache's share of one program.
constexpr double kMemoryRate = 45.0, kAllMemoryRate = 80.0, kCacheBytes = 32e6;

// Work of a step of all channels.
Work StepWork(const ScanShape& s) {
  const OpWork& work = kWork[static_cast<size_t>(s.op)];
  const double channels = static_cast<double>(s.channels);
  const bool few = s.channels <= 8 && std::has_single_bit(s.channels);
  const Work& unit = few ? work.few[std::bit_width(s.channels) - 1] : work.row;
  const double units = few ? channels : static_cast<double>(CeilDiv(s.channels, 16));
  return {unit.scan * units, unit.total * units, unit.tree * units};
}

// `rounds` rounds of `tasks` tasks, which are `work` in all and move `bytes`.
double TimeOf(double work, double bytes, size_t tasks, size_t rounds, size_t threads) {
  const size_t busy = std::min(threads, tasks);
  const double share =
      static_cast<double>(CeilDiv(tasks, busy)) / static_cast<double>(tasks);  // the longest
  double time = work * share;
  if (bytes > kCacheBytes) {
    const double rate = std::min(kAllMemoryRate, kMemoryRate * static_cast<double>(busy));
    time = std::max(time, bytes / rate);
  }
  const double round = busy > 1 ? kRound : 0.0;
  return time + static_cast<double>(rounds) * (round + kTask * share * static_cast<double>(tasks));
}

}  // namespace

double ScanCost(const ScanShape& shape, ScanMethod method, size_t threads) noexcept {
  if (shape.sequences == 0 || shape.steps == 0 || shape.channels == 0) return 0.0;
  const Work step = StepWork(shape);
  const double steps = static_cast<double>(shape.sequences * shape.steps);
  const double operand = steps * static_cast<double>(shape.channels) * sizeof(float);
  const double inputs = shape.op == ScanOp::kLinear ? 2.0 * operand : operand;
  const double once = inputs + 2.0 * operand;  // y is read before it is written
  switch (method) {
    case ScanMethod::kAuto:
      return ScanCost(shape, PickScan(shape), threads);
    case ScanMethod::kSequential: {
      const auto [channels, sequences] = internal::SequentialTasksOf(shape);
      const size_t tasks = CeilDiv(shape.channels, channels) * CeilDiv(shape.sequences, sequences);
      return TimeOf(steps * step.scan, once, tasks, 1, threads);
    }
    case ScanMethod::kChunked: {
      const size_t count = internal::ChunksOf(shape).count;
      const double totals = count < 3 ? 0.0 : step.total;
      // With two chunks the second one waits for the whole of the first.
      const size_t tasks = shape.sequences * (count < 3 ? 1 : count);
      const double chain = std::min(threads, tasks) > 1 ? kChain : 1.0;
      return chain * TimeOf(steps * (step.scan + totals), once, tasks, 1, threads);
    }
    case ScanMethod::kSegmented: {
      const size_t count = internal::SegmentsOf(shape).count;
      const double totals = count < 3 ? 0.0 : step.total;
      const size_t tasks = shape.sequences * std::max<size_t>(1, count - 1);
      return TimeOf(steps * (step.scan + totals), once + inputs, tasks, count > 1 ? 3 : 1, threads);
    }
    case ScanMethod::kBlelloch: {
      const size_t tasks = shape.sequences * internal::BlellochBlocks(shape);
      return TimeOf(steps * step.tree, once + 3.0 * inputs, tasks, 3, threads);
    }
  }
  return 0.0;
}

ScanMethod PickScan(const ScanShape& shape) noexcept {
  constexpr size_t kThreads = 2;
  ScanMethod best = ScanMethod::kSequential;
  for (const ScanMethod m : {ScanMethod::kChunked, ScanMethod::kSegmented, ScanMethod::kBlelloch}) {
    if (ScanCost(shape, m, kThreads) < ScanCost(shape, best, kThreads)) best = m;
  }
  return best;
}

}  // namespace hognose::kernels
