// The guard must see planted allocations of every kind, and nothing else.
#include "tests/support/alloc_guard.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

namespace hognose::testing {
namespace {

// Keeps the compiler from dropping an allocation whose memory nobody reads.
template <typename T>
T* Keep(T* memory) {
  asm volatile("" : "+r"(memory) : : "memory");
  return memory;
}

template <typename Body>
size_t CountOf(const Body& body) {
  const AllocGuard guard;
  body();
  return guard.count();
}

struct alignas(256) Aligned {
  char bytes[256];
};

TEST(AllocGuard, SeesEveryKindOfAllocation) {
  EXPECT_EQ(CountOf([] { free(Keep(malloc(10))); }), 1u);
  EXPECT_EQ(CountOf([] { free(Keep(calloc(3, 10))); }), 1u);
  EXPECT_EQ(CountOf([] { free(Keep(realloc(Keep(malloc(10)), 100000))); }), 2u);
  EXPECT_EQ(CountOf([] { free(Keep(aligned_alloc(64, 128))); }), 1u);
  EXPECT_EQ(CountOf([] {
              void* memory = nullptr;
              ASSERT_EQ(posix_memalign(&memory, 64, 100), 0);
              free(Keep(memory));
            }),
            1u);
  EXPECT_EQ(CountOf([] { delete Keep(new int(1)); }), 1u);
  EXPECT_EQ(CountOf([] { delete[] Keep(new int[9]); }), 1u);
  EXPECT_EQ(CountOf([] { delete Keep(new Aligned); }), 1u);
  EXPECT_EQ(CountOf([] { Keep(std::vector<int>(5).data()); }), 1u);
}

TEST(AllocGuard, GivesMemoryThatIsAlignedAndWritable) {
  for (const size_t alignment : {16, 64, 4096}) {
    auto* memory = static_cast<char*>(aligned_alloc(alignment, 2 * alignment));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0u);
    memory[2 * alignment - 1] = 1;
    free(memory);
  }
}

TEST(AllocGuard, SeesOtherThreads) {
  std::atomic<int> stage{0};
  std::thread other([&] {
    while (stage.load() == 0) std::this_thread::yield();
    delete Keep(new int(1));
    stage.store(2);
  });
  const size_t count = CountOf([&] {
    stage.store(1);
    while (stage.load() != 2) std::this_thread::yield();
  });
  other.join();
  EXPECT_EQ(count, 1u);
}

TEST(AllocGuard, CountsOnlyWhileItLives) {
  int on_stack = 0;
  EXPECT_EQ(CountOf([&] { *Keep(&on_stack) = 1; }), 0u);
  delete Keep(new int(1));
  EXPECT_EQ(CountOf([] {}), 0u);
}

}  // namespace
}  // namespace hognose::testing
