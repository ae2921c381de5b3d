#include <gtest/gtest.h>

#include "kernels/scan/scan.h"
#include "kernels/scan/scan_testing.h"

namespace hognose::kernels {
namespace {

constexpr size_t kLengths[] = {1, 2, 64, 1000, 16384, 100000, 1 << 20};
constexpr size_t kChannels[] = {1, 2, 3, 8, 17, 64, 500, 4096};

template <typename Body>
void ForEachShape(const Body& body) {
  for (const ScanOp op : kScanOps) {
    for (const size_t b : {1, 2, 64}) {
      for (const size_t l : kLengths) {
        for (const size_t c : kChannels) body(ScanShape{op, b, l, c});
      }
    }
  }
}

TEST(PickScan, IsTheCheapestOfTheModelForTwoThreads) {
  ForEachShape([](const ScanShape& shape) {
    const ScanMethod picked = PickScan(shape);
    ASSERT_NE(picked, ScanMethod::kAuto);
    for (const ScanMethod method : kScanMethods) {
      ASSERT_LE(ScanCost(shape, picked, 2), ScanCost(shape, method, 2));
    }
  });
}

// What splits time does more work, so it never pays for a single thread; a tenth is left for what
// starting more tasks costs.
TEST(PickScan, OneThreadIsBestOffStepByStep) {
  ForEachShape([](const ScanShape& shape) {
    for (const ScanMethod method : kScanMethods) {
      ASSERT_LE(ScanCost(shape, ScanMethod::kSequential, 1), 1.1 * ScanCost(shape, method, 1));
    }
  });
}

TEST(PickScan, CostGrowsWithTheWorkAndFallsWithThreads) {
  ForEachShape([](const ScanShape& shape) {
    for (const ScanMethod method : kScanMethods) {
      ScanShape twice = shape;
      twice.sequences *= 2;
      ASSERT_GT(ScanCost(shape, method, 1), 0.0);
      ASSERT_LT(ScanCost(shape, method, 1), ScanCost(twice, method, 1));
      ScanShape large = shape;
      large.steps = 1 << 20;
      large.channels = 1;
      if (method == ScanMethod::kSequential && shape.sequences == 1) continue;
      ASSERT_LT(ScanCost(large, method, 2), ScanCost(large, method, 1));
    }
  });
}

TEST(PickScan, KnownShapes) {
  const auto pick = [](size_t b, size_t l, size_t c) {
    return PickScan({ScanOp::kLinear, b, l, c});
  };
  // Short, or enough channels or sequences for all threads: one step after the other.
  EXPECT_EQ(pick(1, 1, 1), ScanMethod::kSequential);
  EXPECT_EQ(pick(1, 1000, 1), ScanMethod::kSequential);
  EXPECT_EQ(pick(1, 1000, 4096), ScanMethod::kSequential);
  EXPECT_EQ(pick(64, 10000, 1), ScanMethod::kSequential);
  // One long channel: time has to be shared out.
  EXPECT_NE(pick(1, 1 << 20, 1), ScanMethod::kSequential);
  EXPECT_NE(pick(1, 1 << 20, 1), ScanMethod::kBlelloch);
  EXPECT_EQ(pick(0, 10, 10), ScanMethod::kSequential);
}

}  // namespace
}  // namespace hognose::kernels
