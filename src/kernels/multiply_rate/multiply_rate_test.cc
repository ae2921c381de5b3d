#include "kernels/multiply_rate/multiply_rate.h"

#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

TEST(MultiplyRate, AddsUpEveryProduct) {
  ForEachTarget([] {
    for (const MultiplyType type : kMultiplyTypes) {
      const MultiplyUnit unit = UnitFor(type);
      EXPECT_EQ(unit.instruction.empty(), unit.products == 0.0);
      for (const uint64_t rounds : {0, 1, 2, 7, 100}) {
        for (const int x : {0, 1, 7}) {
          ASSERT_EQ(MultiplyRate(type, rounds, x, 5), MultiplyRateRef(type, rounds, x, 5))
              << kMultiplyTypeNames[static_cast<size_t>(type)] << " " << rounds << " " << x;
        }
      }
    }
    EXPECT_GE(UnitFor(MultiplyType::kF32).operations(), 2.0);
  });
}

}  // namespace
}  // namespace hognose::kernels
