// How a batch of matrices is split into tasks and what scratch each has. By shape alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/exec.h"
#include "core/tensor.h"
#include "kernels/expm/expm.h"

namespace hognose::kernels {

// The largest vector of any target.
inline constexpr size_t kDenseMaxBytes = 64;

struct ExpmTasks {
  size_t batch, per_task, count;

  // No more than 32 tasks, since each has scratch of its own; small matrices come by the vector.
  ExpmTasks(size_t n, size_t batch_size) : batch(batch_size) {
    const size_t unit = n <= kExpmMaxLanesSize ? kDenseMaxBytes / sizeof(float) : 1;
    const size_t share = (batch + 31) / 32;
    per_task = std::max<size_t>((share + unit - 1) / unit * unit, unit);
    count = (batch + per_task - 1) / per_task;
  }
  // Calls body(begin, end, scratch) for matrices [begin, end) of every task; each task has `own`
  // numbers of the scratch.
  template <typename T, typename Body>
  void Run(core::Exec& exec, core::Vec<T> scratch, size_t own, const Body& body) const {
    exec.pool.Run(count, [&](size_t task) {
      body(task * per_task, std::min(batch, (task + 1) * per_task), scratch.data + task * own);
    });
  }
};

// Numbers in a working matrix n x cols, and in the pivots of one, for either layout.
template <typename T>
size_t DenseSize(size_t n, size_t cols) {
  constexpr size_t kLanes = kDenseMaxBytes / sizeof(T);
  return n * (n <= kExpmMaxLanesSize ? cols * kLanes : (cols + kLanes - 1) / kLanes * kLanes);
}
template <typename T>
size_t DensePivots(size_t n) {
  return n * kDenseMaxBytes / sizeof(T);
}

// Scratch of one task for so many numbers, with what it takes to begin on a whole vector.
template <typename T>
size_t DenseTaskScratch(size_t numbers) {
  constexpr size_t kLanes = kDenseMaxBytes / sizeof(T);
  return (numbers + kLanes - 1) / kLanes * kLanes + kLanes;
}
template <typename T>
T* DenseAligned(T* scratch) {
  const auto address = reinterpret_cast<uintptr_t>(scratch);
  return scratch + (kDenseMaxBytes - address % kDenseMaxBytes) % kDenseMaxBytes / sizeof(T);
}

}  // namespace hognose::kernels
