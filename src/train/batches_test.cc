#include "train/batches.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "io/test_util.h"

namespace hognose::train {
namespace {

using io::FailsWith;

TokenData Tokens(size_t count) {
  const io::TestFolder folder;
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{} ", i % 10);
  auto data = TokenData::Load(folder.Put("ids", text), {.vocab = 10});
  EXPECT_TRUE(data.ok()) << data.status().message();
  return std::move(*data);
}

TEST(PermuteTest, IsAPermutation) {
  for (const size_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (const uint64_t epoch : {0, 1, 2}) {
      std::set<size_t> seen;
      for (size_t i = 0; i < n; ++i) {
        const size_t x = Permute(7, epoch, n, i);
        EXPECT_LT(x, n);
        seen.insert(x);
      }
      EXPECT_EQ(seen.size(), n);
    }
  }
}

// Element 0 of 5 goes to each of the 5 places equally often: of 5000 seeds, 1000 each with a
// deviation of sqrt(5000 * 0.2 * 0.8) = 28; 5 deviations.
TEST(PermuteTest, ShufflesSmallSetsEvenly) {
  for (const bool by_epoch : {false, true}) {
    for (size_t index = 0; index < 5; ++index) {
      std::vector<int> count(5);
      for (uint64_t s = 0; s < 5000; ++s) {
        ++count[by_epoch ? Permute(3, s, 5, index) : Permute(s, 3, 5, index)];
      }
      for (const int c : count) EXPECT_NEAR(c, 1000, 5 * 28);
    }
  }
}

// The mean distance of neighbours in a random permutation of n is (n + 1) / 3; its deviation for n
// = 10000 is about n / sqrt(18 n) = 24.
TEST(PermuteTest, NeighboursLieFarApart) {
  constexpr size_t n = 10000;
  double sum = 0;
  for (size_t i = 0; i + 1 < n; ++i) {
    sum += std::abs(static_cast<double>(Permute(1, 0, n, i)) -
                    static_cast<double>(Permute(1, 0, n, i + 1)));
  }
  EXPECT_NEAR(sum / (n - 1), (n + 1) / 3.0, 5 * 24);
}

TEST(BatchesTest, SequentialReadsInOrder) {
  const TokenData data = Tokens(25);  // 6 windows of 4 and the target of the last
  const auto batches = Batches::Create(
      data, {.order = Order::kSequential, .batch = 2, .length = 4, .seed = 1, .steps = 3});
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  EXPECT_EQ(batches->windows(), 6u);
  for (size_t step = 0; step < 3; ++step) {
    for (size_t row = 0; row < 2; ++row) EXPECT_EQ(batches->Begin(step, row), (step * 2 + row) * 4);
  }
}

TEST(BatchesTest, SequentialSaysHowManyStepsThereAre) {
  const TokenData data = Tokens(24);  // one short of 6 windows
  const auto error = Batches::Create(
      data, {.order = Order::kSequential, .batch = 2, .length = 4, .seed = 1, .steps = 3});
  EXPECT_TRUE(FailsWith(error.status(), {"--steps: got 3, want at most 2", "/ids holds 5 seq"}));
}

TEST(BatchesTest, RefusesDataBelowOneSequence) {
  for (const Order order : {Order::kShuffled, Order::kSequential}) {
    EXPECT_TRUE(Batches::Create(Tokens(9), {.order = order, .length = 8}).ok());
    EXPECT_TRUE(FailsWith(Batches::Create(Tokens(8), {.order = order, .length = 8}).status(),
                          {"/ids: got 8 tokens, want at least 9"}));
  }
}

TEST(BatchesTest, ShuffledShowsEveryWindowOncePerEpoch) {
  const TokenData data = Tokens(30);  // 7 windows of 4
  const BatchOptions options = {.batch = 3, .length = 4, .seed = 5};
  const auto batches = Batches::Create(data, options);
  ASSERT_TRUE(batches.ok());
  std::vector<size_t> begins;
  for (size_t step = 0; step < 14; ++step) {
    for (size_t row = 0; row < 3; ++row) begins.push_back(batches->Begin(step, row));
  }
  std::set<std::vector<size_t>> orders;
  for (size_t epoch = 0; epoch < 6; ++epoch) {
    const std::vector<size_t> order(begins.begin() + epoch * 7, begins.begin() + epoch * 7 + 7);
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()),
              (std::set<size_t>{0, 4, 8, 12, 16, 20, 24}));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6u);
  // Another object, asked in the middle, says the same.
  EXPECT_EQ(Batches::Create(data, options)->Begin(9, 1), begins[28]);
  size_t same = 0;
  const auto other = Batches::Create(data, {.batch = 3, .length = 4, .seed = 6});
  for (size_t i = 0; i < begins.size(); ++i) same += other->Begin(i / 3, i % 3) == begins[i];
  EXPECT_LT(same, begins.size() / 2);
}

}  // namespace
}  // namespace hognose::train
