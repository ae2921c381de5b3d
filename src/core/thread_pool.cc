#include "core/thread_pool.h"

#include <sched.h>

#include <utility>

#include "core/check.h"
#include "core/cpu.h"
#include "core/fp_env.h"

namespace hognose::core {
namespace {

// A worker looks this often for the next round before it parks: about 50 microseconds, longer than
// the serial gaps inside a model's step, short enough to leave an idle machine idle.
constexpr int kSpins = 2000;
// A waiting caller yields its core after this many looks, so that an oversubscribed machine goes
// on.
constexpr int kSpinsBeforeYield = 20000;

// The pool of whose tasks this thread runs one.
thread_local const ThreadPool* running = nullptr;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // ISB waits about as long as PAUSE; YIELD is no operation on most cores.
  asm volatile("isb");
#endif
}

// A refusal costs speed only.
void StayOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  (void)sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

ThreadPool::ThreadPool(size_t threads, bool pin) : shares_(threads) {
  HOGNOSE_CHECK(threads >= 1);
  const std::vector<int> processors = pin ? ProcessorsByCore() : std::vector<int>();
  workers_.reserve(threads - 1);
  try {
    for (size_t i = 1; i < threads; ++i) {
      const int processor = processors.empty() ? -1 : processors[i % processors.size()];
      workers_.emplace_back([this, i, processor] {
        if (processor >= 0) StayOn(processor);
        Work(i);
      });
    }
  } catch (...) {
    Stop();  // those that did start must not outlive this object
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::TakeTasks(uint64_t round, size_t self) {
  for (size_t i = 0; i < shares_.size(); ++i) TakeShare(round, (self + i) % shares_.size());
}

void ThreadPool::TakeShare(uint64_t round, size_t k) {
  auto& shared = shares_[k].ticket;
  uint64_t ticket = shared.load(std::memory_order_acquire);
  for (;;) {
    if (ticket >> 32 != round) return;
    const Task* task = task_.load(std::memory_order_acquire);
    const size_t end = count_.load(std::memory_order_acquire) * (k + 1) / shares_.size();
    const size_t i = ticket & 0xFFFFFFFFu;
    if (i >= end) return;
    // Success means that the round is still open, so `task` is this round's and is alive.
    if (!shared.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    const ThreadPool* before = std::exchange(running, this);
    (*task)(i);
    running = before;
    done_.fetch_add(1, std::memory_order_release);
    ticket = shared.load(std::memory_order_acquire);
  }
}

void ThreadPool::Run(size_t count, Task task) {
  if (count == 0) return;
  HOGNOSE_CHECK(count < 0xFFFFFFFFu);
  if (workers_.empty() || count == 1 || running == this) {
    for (size_t i = 0; i < count; ++i) task(i);
    return;
  }
  // Close the old round before its fields change, then open the new one.
  const uint64_t round = (uint64_t{round_.load(std::memory_order_relaxed)} + 1) & 0xFFFFFFFFu;
  for (auto& share : shares_) {
    share.ticket.store((round << 32) | 0xFFFFFFFFu, std::memory_order_seq_cst);
  }
  task_.store(&task, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  done_.store(0, std::memory_order_relaxed);
  for (size_t k = 0; k < shares_.size(); ++k) {
    shares_[k].ticket.store((round << 32) | (count * k / shares_.size()),
                            std::memory_order_seq_cst);
  }
  round_.store(static_cast<uint32_t>(round), std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) round_.notify_all();
  TakeTasks(round, 0);
  for (int spins = 0; done_.load(std::memory_order_acquire) < count; ++spins) {
    if (spins < kSpinsBeforeYield) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::Work(size_t self) {
  const FlushDenormals flush;
  uint32_t seen = 0;
  while (!stop_.load()) {
    int spins = 0;
    while (round_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        Pause();
        continue;
      }
      parked_.fetch_add(1, std::memory_order_seq_cst);
      round_.wait(seen, std::memory_order_seq_cst);
      parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen = round_.load(std::memory_order_acquire);
    if (!stop_.load()) TakeTasks(seen, self);
  }
}

}  // namespace hognose::core
