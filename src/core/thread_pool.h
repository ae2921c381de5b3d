// ThreadPool: runs numbered tasks on a fixed set of threads, the caller among them.
//
// Tasks are fixed by the shape of the work, never by the number of threads, and each writes its own
// part of the result: so results have the same bits for any number of threads. Each thread begins
// with its own run of neighbouring tasks (what one asks from memory ahead, the next one uses) and
// then helps the others; which thread takes which task is not defined.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/function_ref.h"

namespace hognose::core {

class ThreadPool {
 public:
  // Starts threads - 1 workers (threads >= 1). Workers flush denormals. With `pin` each stays on a
  // processor of its own, as far as there are some, leaving the first to the caller, whose affinity
  // is not touched. Throws std::system_error when the system gives no more threads.
  explicit ThreadPool(size_t threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls task(i) once for every i in [0, count) and returns when all are done. One caller at a
  // time; a call from inside a task runs its tasks one after the other on the task's own thread.
  // Does not allocate.
  void Run(size_t count, FunctionRef<void(size_t task)> task);

 private:
  using Task = FunctionRef<void(size_t)>;

  // One thread's run of tasks: [count * k / threads, count * (k + 1) / threads).
  struct alignas(64) Share {
    // High 32 bits: number of the round; low 32 bits: the next task that nobody has taken. One
    // word, so that a late thread can't take a task of a round that it has not seen.
    std::atomic<uint64_t> ticket{0};
  };

  void Work(size_t self);
  void Stop();
  // Takes tasks of round `round` until none is left, from the thread's own share first.
  void TakeTasks(uint64_t round, size_t self);
  void TakeShare(uint64_t round, size_t k);

  std::vector<Share> shares_;
  std::atomic<const Task*> task_{nullptr};
  std::atomic<size_t> count_{0};
  std::atomic<size_t> done_{0};
  std::atomic<uint32_t> round_{0};  // what parked workers wait on
  std::atomic<uint32_t> parked_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace hognose::core
