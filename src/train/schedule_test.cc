#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hognose::train {
namespace {

// Values here are exact or, where a cosine or a division rounds, within a few eps of peak: the sum
// of at most five roundings, each of at most eps/2 of a number of at most 2 peak.
constexpr double kTolerance = 5 * std::numeric_limits<double>::epsilon();

TEST(ScheduleTest, WarmsUpToThePeak) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kCosine}) {
    const Schedule s = {.kind = kind, .peak = 2, .min = 0.5, .warmup = 4, .total = 12};
    EXPECT_EQ(s.LearningRate(0), 0.5);
    EXPECT_EQ(s.LearningRate(1), 1);
    EXPECT_EQ(s.LearningRate(2), 1.5);
    EXPECT_EQ(s.LearningRate(3), 2);
    EXPECT_EQ(s.LearningRate(4), 2);
  }
}

TEST(ScheduleTest, ConstantStays) {
  const Schedule s = {.kind = ScheduleKind::kConstant, .peak = 0.3, .total = 5};
  for (size_t step = 0; step < 10; ++step) EXPECT_EQ(s.LearningRate(step), 0.3);
}

TEST(ScheduleTest, CosineFallsToTheMinimum) {
  const Schedule s = {.peak = 2, .min = 0.5, .warmup = 4, .total = 16};
  EXPECT_EQ(s.LearningRate(4), 2);
  EXPECT_NEAR(s.LearningRate(8), 0.5 + 0.75 * 1.5, 2 * kTolerance);   // cos(pi/3) = 1/2
  EXPECT_NEAR(s.LearningRate(10), 1.25, 2 * kTolerance);              // cos(pi/2) = 0
  EXPECT_NEAR(s.LearningRate(12), 0.5 + 0.75 * 0.5, 2 * kTolerance);  // cos(2 pi/3) = -1/2
  for (size_t step = 5; step < 16; ++step) {
    EXPECT_LT(s.LearningRate(step), s.LearningRate(step - 1));
    EXPECT_GT(s.LearningRate(step), 0.5);
  }
  EXPECT_EQ(s.LearningRate(16), 0.5);
  EXPECT_EQ(s.LearningRate(1000), 0.5);
}

TEST(ScheduleTest, WarmUpMayBeTheWholeRun) {
  const Schedule s = {.peak = 1, .warmup = 3, .total = 3};
  EXPECT_TRUE(s.Check().ok());
  EXPECT_EQ(s.LearningRate(2), 1);
  EXPECT_EQ(s.LearningRate(3), 0);
}

TEST(ScheduleTest, RefusesWhatIsNoSchedule) {
  const auto error = [](const Schedule& s) { return std::string(s.Check().message()); };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.peak = 0}), "--lr: got 0, want a finite number above 0");
  EXPECT_EQ(error({.peak = HUGE_VAL}), "--lr: got inf, want a finite number above 0");
  EXPECT_EQ(error({.peak = 1, .min = 2}), "--min-lr: got 2, want from 0 to --lr 1");
  EXPECT_EQ(error({.peak = 1, .min = -1}), "--min-lr: got -1, want from 0 to --lr 1");
  EXPECT_EQ(error({.warmup = 6, .total = 5}), "--warmup: got 6, want at most --steps 5");
}

}  // namespace
}  // namespace hognose::train
