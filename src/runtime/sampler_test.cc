// Sampler against probabilities computed directly from its description.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace hognose::runtime {
namespace {

const std::vector<float> kLogits = {2.0f, -1.0f, 3.0f, 3.0f, 0.5f, -4.0f, 1.5f, 2.5f};
const std::vector<bool> kAll(kLogits.size(), true);

// The probability of every id, by the order that sampler.h promises: penalty, top-k, top-p, min-p,
// temperature.
std::vector<double> Probabilities(const SamplerOptions& o, const std::vector<bool>& sampleable,
                                  const std::vector<int32_t>& recent) {
  std::vector<double> logits(kLogits.begin(), kLogits.end());
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::count(recent.begin(), recent.end(), static_cast<int32_t>(id)) == 0) continue;
    logits[id] = logits[id] > 0 ? logits[id] / o.repeat_penalty : logits[id] * o.repeat_penalty;
  }
  std::vector<size_t> order;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (sampleable[id]) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (o.top_k != 0 && o.top_k < order.size()) order.resize(o.top_k);
  const auto softmax = [&](double temperature) {
    std::vector<double> p;
    for (const size_t id : order) p.push_back(std::exp(logits[id] / temperature));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
    return p;
  };
  const auto p = softmax(1.0);
  size_t keep = 0;
  for (double share = 0.0; keep < p.size() && (keep == 0 || share < o.top_p);) share += p[keep++];
  while (keep > 1 && p[keep - 1] < o.min_p * p[0]) --keep;
  order.resize(keep);
  const auto final = softmax(o.temperature);
  std::vector<double> all(logits.size(), 0.0);
  for (size_t i = 0; i < keep; ++i) all[order[i]] = final[i];
  return all;
}

void ExpectDistribution(const SamplerOptions& options, const std::vector<bool>& sampleable = kAll,
                        const std::vector<int32_t>& recent = {}) {
  const auto want = Probabilities(options, sampleable, recent);
  Sampler sampler(options, sampleable, 11);
  for (const int32_t id : recent) sampler.Accept(id);
  constexpr size_t kDraws = 40000;
  std::vector<size_t> got(kLogits.size(), 0);
  for (size_t i = 0; i < kDraws; ++i) ++got[static_cast<size_t>(sampler.Sample(kLogits))];
  // Pearson's sum has mean f and variance 2 f for f degrees of freedom; six standard deviations
  // above the mean. Rare ids (expected below 5) go into the sum's neighbour by a bound of their
  // own.
  double sum = 0.0;
  size_t cells = 0;
  for (size_t id = 0; id < want.size(); ++id) {
    const double expected = want[id] * kDraws;
    if (want[id] == 0.0) {
      EXPECT_EQ(got[id], 0u) << id;
    } else if (expected < 5.0) {
      // Poisson with mean below 5: more than 25 has a probability below 1e-9.
      EXPECT_LE(got[id], 25u) << id;
    } else {
      sum += (static_cast<double>(got[id]) - expected) * (static_cast<double>(got[id]) - expected) /
             expected;
      ++cells;
    }
  }
  ASSERT_GE(cells, 1u);
  const double freedom = static_cast<double>(cells) - 1.0;
  EXPECT_LE(sum, freedom + 6.0 * std::sqrt(2.0 * freedom));
}

constexpr SamplerOptions kPlain = {
    .temperature = 1.0, .top_k = 0, .top_p = 1.0, .min_p = 0.0, .repeat_penalty = 1.0};

SamplerOptions With(auto set) {
  SamplerOptions options = kPlain;
  set(options);
  return options;
}

TEST(Sampler, DrawsTheSoftmax) { ExpectDistribution(kPlain); }

TEST(Sampler, TemperatureSharpensAndFlattens) {
  for (const double t : {0.3, 0.8, 2.0, 100.0}) {
    ExpectDistribution(With([&](auto& o) { o.temperature = t; }));
  }
}

TEST(Sampler, TopKKeepsTheBestLowestIdFirst) {
  for (const size_t k : {1, 2, 3, 5, 8, 100}) {
    ExpectDistribution(With([&](auto& o) { o.top_k = k; }));
  }
}

TEST(Sampler, TopPAndMinPCut) {
  for (const double p : {0.0, 0.1, 0.5, 0.8, 0.95, 0.999}) {
    ExpectDistribution(With([&](auto& o) { o.top_p = p; }));
    ExpectDistribution(With([&](auto& o) { o.min_p = p; }));
  }
}

TEST(Sampler, EverythingTogether) {
  const SamplerOptions options = {
      .temperature = 0.7, .top_k = 6, .top_p = 0.97, .min_p = 0.02, .repeat_penalty = 1.3};
  ExpectDistribution(options);
  ExpectDistribution(options, kAll, {2, 2, 5, 1});
  ExpectDistribution(options, {true, true, false, true, true, true, false, true}, {0});
  ExpectDistribution(With([](auto& o) { o.repeat_penalty = 1.5; }), kAll, {2, 1});
  ExpectDistribution(With([](auto& o) { o.repeat_penalty = 0.8; }), kAll, {2, 1});
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOnTies) {
  const auto greedy = With([](auto& o) { o.temperature = 0.0; });
  Sampler sampler(greedy, kAll, 1);
  const auto before = sampler.state();
  EXPECT_EQ(sampler.Sample(kLogits), 2);
  EXPECT_EQ(sampler.state().rng, before.rng) << "nothing is drawn";
  EXPECT_EQ(Sampler(greedy, kAll, 1).Sample(std::vector<float>(8, -7.0f)), 0);
  const std::vector<bool> some = {false, true, false, true, true, true, true, true};
  EXPECT_EQ(Sampler(greedy, some, 1).Sample(kLogits), 3);
  // The penalty acts before the choice.
  auto penalised = greedy;
  penalised.repeat_penalty = 2.0;
  Sampler repeat(penalised, kAll, 1);
  repeat.Accept(2);
  repeat.Accept(3);
  EXPECT_EQ(repeat.Sample(kLogits), 7);
}

TEST(Sampler, NeverGivesATokenThatIsNotSampleable) {
  std::vector<bool> one(kLogits.size(), false);
  one[5] = true;  // the least likely
  for (const double t : {0.0, 0.01, 1.0, 1000.0}) {
    Sampler sampler(With([&](auto& o) { o.temperature = t; }), one, 3);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(sampler.Sample(kLogits), 5);
  }
  // Extreme logits, also such that a broken model gives: an allowed id all the same.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<bool> half = {true, false, true, false, true, false, true, false};
  for (const auto& logits : {std::vector<float>(8, nan), std::vector<float>(8, -inf),
                             std::vector<float>(8, inf), std::vector<float>(8, 3e38f),
                             std::vector<float>{nan, inf, -inf, 0, 1, nan, -3e38f, 3e38f}}) {
    for (const double t : {0.0, 1e-300, 1.0, 1e300}) {
      Sampler sampler(With([&](auto& o) { o.temperature = t; }), half, 3);
      for (int i = 0; i < 50; ++i) ASSERT_EQ(sampler.Sample(logits) % 2, 0);
    }
  }
}

std::vector<int32_t> Draw(Sampler& sampler, size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(sampler.Sample(kLogits));
    sampler.Accept(ids.back());
  }
  return ids;
}

TEST(Sampler, TheSameSeedDrawsTheSame) {
  Sampler a({}, kAll, 5), b({}, kAll, 5), c({}, kAll, 6);
  const auto first = Draw(a, 200);
  EXPECT_EQ(first, Draw(b, 200));
  EXPECT_NE(first, Draw(c, 200));
}

// Also when more tokens have passed than the penalty looks back on.
TEST(Sampler, ARestoredStateContinuesTheDraws) {
  auto options = kPlain;
  options.repeat_penalty = 1.5;
  for (const size_t before : {0, 1, 5, 63, 64, 65, 200}) {
    Sampler whole(options, kAll, 9);
    Draw(whole, before);
    const Sampler::State state = whole.state();
    EXPECT_EQ(state.recent.size(), std::min<size_t>(before, Sampler::kRecent));
    const auto want = Draw(whole, 150);
    Sampler other(options, kAll, 12345);
    Draw(other, 7);
    other.Restore(state);
    EXPECT_EQ(Draw(other, 150), want) << before;
  }
}

TEST(Sampler, ThePenaltyForgetsOldTokens) {
  auto options = With([](auto& o) { o.temperature = 0.0; });
  options.repeat_penalty = 100.0;
  Sampler sampler(options, kAll, 1);
  sampler.Accept(2);
  EXPECT_EQ(sampler.Sample(kLogits), 3);
  for (size_t i = 0; i + 1 < Sampler::kRecent; ++i) sampler.Accept(5);
  EXPECT_EQ(sampler.Sample(kLogits), 3) << "64 tokens back";
  sampler.Accept(5);
  EXPECT_EQ(sampler.Sample(kLogits), 2) << "forgotten";
}

}  // namespace
}  // namespace hognose::runtime
