// The comparison helper must fail on planted errors.
#include "tests/support/compare.h"

#include <limits>

namespace hognose::testing {
namespace {

const std::vector<float> kWant = {1.0f, -2.0f, 0.5f, 4.0f};

TEST(CloseToScale, TakesEqualAndNearValues) {
  auto got = kWant;
  EXPECT_TRUE(CloseToScale(got, kWant, 0.0));
  got[2] += 4.0f * 1e-3f * 0.9f;
  EXPECT_TRUE(CloseToScale(got, kWant, 1e-3));
  EXPECT_FALSE(CloseToScale(got, kWant, 0.8e-3));
}

TEST(CloseToScale, RefusesPlantedErrors) {
  auto sign = kWant;
  sign[2] = -sign[2];
  EXPECT_FALSE(CloseToScale(sign, kWant, 0.2));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (size_t i = 0; i < kWant.size(); ++i) {
      auto got = kWant;
      got[i] = bad;
      EXPECT_FALSE(CloseToScale(got, kWant, 1e30));
      EXPECT_FALSE(CloseToScale(kWant, got, 1e30));
      EXPECT_FALSE(SameBits(got, kWant));
    }
  }
  EXPECT_FALSE(CloseToScale(kWant, kWant, 1.0)) << "the same memory";
  EXPECT_FALSE(CloseToScale({}, {}, 1.0)) << "nothing compared";
  EXPECT_FALSE(CloseToScale(std::vector<float>(3), kWant, 1.0)) << "another size";
  EXPECT_FALSE(CloseToScale(std::vector<float>(4), std::vector<float>(4), 1.0)) << "all zero";
}

TEST(Within, TakesWhatTheBoundAllowsAndNothingElse) {
  auto got = kWant;
  got[0] += 0.5f;
  EXPECT_TRUE(Within(got, kWant, 0.5));
  EXPECT_FALSE(Within(got, kWant, 0.4));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    got[3] = bad;
    EXPECT_FALSE(Within(got, kWant, 1e30));
    EXPECT_FALSE(Within(kWant, got, 1e30));
  }
  EXPECT_FALSE(Within(kWant, kWant, 1.0)) << "the same memory";
  EXPECT_FALSE(Within({}, {}, 1.0)) << "nothing compared";
}

TEST(SameBits, SeesTheSignOfZero) {
  EXPECT_TRUE(SameBits(std::vector<float>{0.0f}, std::vector<float>{0.0f}));
  EXPECT_FALSE(SameBits(std::vector<float>{-0.0f}, std::vector<float>{0.0f}));
}

}  // namespace
}  // namespace hognose::testing
