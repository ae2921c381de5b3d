#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "core/cpu.h"
#include "core/fp_env.h"

namespace hognose::core {
namespace {

// Plain counters on purpose: under TSan a task that ran twice or late is a race.
void ExpectEachOnce(ThreadPool& pool, size_t count) {
  std::vector<int> calls(count, 0);
  pool.Run(count, [&](size_t i) { ++calls[i]; });
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(calls[i], 1) << i << " of " << count;
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const size_t count : {0, 1, 2, 3, 7, 8, 9, 64, 1000, 20000}) ExpectEachOnce(pool, count);
  }
}

TEST(ThreadPool, ATaskMayRunTasksOnItsOwnThread) {
  ThreadPool pool(3), other(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<size_t> sums(7, 0);
    pool.Run(sums.size(), [&](size_t i) {
      const auto self = std::this_thread::get_id();
      pool.Run(5, [&](size_t k) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        pool.Run(2, [&](size_t j) { sums[i] += k * j; });
      });
    });
    for (const size_t sum : sums) ASSERT_EQ(sum, 10u);
    ExpectEachOnce(pool, 64);
  }
  // Another pool's tasks are not this one's.
  other.Run(2, [&](size_t i) {
    if (i == 0) ExpectEachOnce(pool, 64);
  });
}

TEST(ThreadPool, PinsItsWorkersOnRequestAndNeverTheCaller) {
  const auto affinity = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    return set;
  };
  const cpu_set_t before = affinity();
  const std::vector<int> processors = ProcessorsByCore();
  ASSERT_EQ(processors.size(), Cpu().usable_threads);
  for (const int processor : processors) EXPECT_TRUE(CPU_ISSET(processor, &before));
  for (const bool pin : {false, true}) {
    ThreadPool pool(3, pin);
    const auto caller = std::this_thread::get_id();
    std::atomic<int> on_workers{0};
    // Until a worker took part: the caller alone may be faster.
    while (on_workers == 0) {
      pool.Run(64, [&](size_t) {
        std::this_thread::yield();
        if (std::this_thread::get_id() == caller) return;
        const cpu_set_t set = affinity();
        EXPECT_EQ(CPU_COUNT(&set), pin ? 1 : CPU_COUNT(&before));
        ++on_workers;
      });
    }
    const cpu_set_t after = affinity();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }
}

TEST(ThreadPool, StandsThousandsOfRoundsBackToBack) {
  ThreadPool pool(4);
  std::vector<size_t> sums(16, 0);
  constexpr size_t kRounds = 5000;
  for (size_t round = 0; round < kRounds; ++round) {
    // The task object is another one in every round and dies after it.
    const size_t count = 2 + round % 15;
    pool.Run(count, [&sums, round](size_t i) { sums[i] += round; });
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    size_t want = 0;
    for (size_t round = 0; round < kRounds; ++round) want += i < 2 + round % 15 ? round : 0;
    EXPECT_EQ(sums[i], want) << i;
  }
}

TEST(ThreadPool, WritesOfTasksAreSeenByTheCallerAndByTheNextRound) {
  ThreadPool pool(3);
  std::vector<int> a(100, 0), b(100, 0);
  for (int round = 1; round <= 2000; ++round) {
    pool.Run(a.size(), [&](size_t i) { a[i] = round; });
    pool.Run(b.size(), [&](size_t i) { b[i] = a[a.size() - 1 - i]; });
    for (size_t i = 0; i < b.size(); ++i) ASSERT_EQ(b[i], round);
  }
}

TEST(ThreadPool, WorksWithMoreThreadsThanCores) {
  ThreadPool pool(4 * Cpu().usable_threads + 3);
  for (int round = 0; round < 20; ++round) ExpectEachOnce(pool, 100);
}

// A task that only a worker can finish: it waits until two threads are inside the round.
TEST(ThreadPool, ParkedWorkersWakeUp) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    // Longer than a worker spins, so that it is parked now.
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::atomic<int> inside{0};
    pool.Run(2, [&](size_t) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(inside.load(), 2);
  }
}

TEST(ThreadPool, EndsWithoutARoundAndWhileParked) {
  for (int i = 0; i < 50; ++i) ThreadPool unused(3);
  for (int i = 0; i < 5; ++i) {
    ThreadPool pool(3);
    ExpectEachOnce(pool, 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ThreadPool, ResultsDoNotDependOnTheNumberOfThreads) {
  const auto compute = [](size_t threads) {
    ThreadPool pool(threads);
    std::vector<float> sums(37, 0.0f);
    pool.Run(sums.size(), [&](size_t task) {
      for (int k = 1; k < 200; ++k) sums[task] += std::sin(static_cast<float>(task * 200 + k));
    });
    return sums;
  };
  const auto want = compute(1);
  for (const size_t threads : {2, 3, 5, 9}) EXPECT_EQ(compute(threads), want) << threads;
}

TEST(ThreadPool, PoolsOfSeveralThreadsDoNotMeet) {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([] {
      ThreadPool pool(2);
      for (int round = 0; round < 300; ++round) ExpectEachOnce(pool, 10);
    });
  }
  for (auto& caller : callers) caller.join();
}

// volatile: computed at run time, on the thread that asks.
bool HalvesToSubnormal() {
  volatile float smallest_normal = 0x1p-126f;
  return smallest_normal * 0.5f != 0.0f;
}

TEST(ThreadPool, WorkersFlushDenormals) {
  ASSERT_TRUE(HalvesToSubnormal());
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> inside{0}, flushed{0}, kept{0};
  pool.Run(2, [&](size_t) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();  // so that the worker has one of the two
    if (std::this_thread::get_id() == caller) return;
    (HalvesToSubnormal() ? kept : flushed).fetch_add(1);
  });
  EXPECT_EQ(flushed.load(), kFlushMode != 0 ? 1 : 0);
  EXPECT_EQ(flushed.load() + kept.load(), 1);
}

}  // namespace
}  // namespace hognose::core
