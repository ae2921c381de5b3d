#include "kernels/cross_entropy/cross_entropy.h"

#include <limits>

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

struct Case {
  std::vector<float> logits, got, want;
  std::vector<int32_t> targets;
  std::vector<double> losses, want_losses;
  CrossEntropyArgs args;

  // `pad` columns without probability, full of what would dominate the sum.
  Case(core::Rng& rng, size_t l, size_t v, size_t pad, double range)
      : logits(RandomValues(rng, l * (v + pad + 3), -range, range)),
        targets(l),
        losses(l, 7.0),
        want_losses(l) {
    for (size_t i = 0; i < l; ++i) {
      targets[i] = i % 4 == 3 ? kIgnored : static_cast<int32_t>(rng.Below(v));
      std::fill_n(logits.begin() + i * (v + pad + 3) + v, pad, static_cast<float>(range + 50.0));
    }
    got = want = logits;
    args = {.logits = {got.data(), l, v + pad, v + pad + 3},
            .valid = pad == 0 ? 0 : v,
            .targets = targets,
            .scale = 0.25f,
            .losses = {losses.data(), l}};
  }
  void RunRef() {
    CrossEntropyArgs a = args;
    a.logits.data = want.data();
    a.losses.data = want_losses.data();
    CrossEntropyRef(a);
  }
};

// exp 2^-22 = 2 eps, the subtraction of the maximum d / 2 eps for a logit d below it, the sum at
// most 256 / 2 eps (a lane of one, plain C++) plus log2(16) / 2 for the lanes. In the sum the terms
// are weighted with e^-d, and d e^-d stays below 1: within the 8.
constexpr double kSumEps = 256 / 2 + 8;

void CheckAgainstOracle(const Case& c) {
  const size_t cols = c.args.logits.cols, valid = c.args.valid == 0 ? cols : c.args.valid;
  const size_t stride = c.args.logits.stride;
  for (size_t l = 0; l < c.targets.size(); ++l) {
    ASSERT_NEAR(c.losses[l], c.want_losses[l], kSumEps * kEpsF32) << l;
    const float* x = c.logits.data() + l * stride;
    const double max = *std::max_element(x, x + valid);
    for (size_t v = 0; v < cols; ++v) {
      const double got = c.got[l * stride + v], want = c.want[l * stride + v];
      const bool at_target = static_cast<int32_t>(v) == c.targets[l];
      // The target's is p - 1, with p's error; p is at most 1.
      const double p = at_target ? c.args.scale : std::abs(want);
      const double d = v < valid ? max - x[v] : 0.0;
      // exp is 0 where its result is no normal number.
      ASSERT_NEAR(got, want, (kSumEps + 4.0 + d / 2.0) * kEpsF32 * p + 1e-37) << l << " " << v;
    }
    for (size_t v = cols; v < stride; ++v) ASSERT_EQ(c.got[l * stride + v], x[v]);
  }
}

TEST(CrossEntropy, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t l : {1, 2, 5}) {
      for (const size_t v : {1, 2, 15, 17, 256, 257, 1000, 50280}) {
        for (const size_t pad : {0, 5}) {
          for (const double range : {0.0, 1.0, 10.0, 100.0}) {
            if (v == 50280 && (l != 2 || range == 100.0)) continue;
            Case c(rng, l, v, pad, range);
            c.RunRef();
            CrossEntropy(exec, c.args);
            CheckAgainstOracle(c);
            ASSERT_FALSE(::testing::Test::HasFailure()) << l << " " << v << " " << pad;
          }
        }
      }
    }
  });
}

TEST(CrossEntropy, WithoutGradientTheLogitsStay) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    Case c(rng, 9, 100, 4, 5.0);
    c.args.gradient = false;
    CrossEntropy(exec, c.args);
    const auto losses = c.losses;
    ASSERT_TRUE(SameBits(c.got, c.logits));
    c.args.gradient = true;
    CrossEntropy(exec, c.args);
    ASSERT_EQ(c.losses, losses);
  });
}

TEST(CrossEntropy, AnyThreadCountHasTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(3);
    const Case start(rng, 40, 1000, 3, 5.0);
    std::vector<float> first;
    for (const size_t threads : {1, 3}) {
      core::ThreadPool pool(threads);
      core::Exec exec{pool};
      auto logits = start.logits;
      std::vector<double> losses(40);
      CrossEntropyArgs a = start.args;
      a.logits.data = logits.data();
      a.targets = start.targets;
      a.losses.data = losses.data();
      CrossEntropy(exec, a);
      if (threads == 1) {
        first = logits;
      } else {
        ASSERT_TRUE(SameBits(logits, first));
      }
    }
  });
}

TEST(CrossEntropy, ExtremeLogits) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  ForEachTarget([&] {
    const auto run = [&](std::vector<float> x, int32_t target) {
      double loss = 0.0;
      CrossEntropy(exec, {.logits = {x.data(), 1, x.size(), x.size()},
                          .targets = std::span(&target, 1),
                          .losses = {&loss, 1}});
      return std::pair(loss, x);
    };
    const auto [sure, sure_gradient] = run({-kInf, 3e38f, -3e38f, -kInf}, 1);
    EXPECT_EQ(sure, 0.0);
    EXPECT_EQ(sure_gradient, (std::vector<float>{0.0f, 0.0f, 0.0f, 0.0f}));
    const auto [wrong, wrong_gradient] = run({0.0f, 1e30f, 0.0f}, 0);
    EXPECT_EQ(wrong, static_cast<double>(1e30f));
    EXPECT_EQ(wrong_gradient, (std::vector<float>{-1.0f, 1.0f, 0.0f}));
    EXPECT_TRUE(std::isnan(run({0.0f, kInf, 1.0f}, 0).first));
    std::vector<float> bad(40, 0.0f);
    bad[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(run(bad, 0).first));
  });
}

// Central differences with h = 2^-12: h^2 / 6 of a third derivative below 1 is 1e-8; the oracle's
// rounding to f32 is 6e-8 of the scale.
TEST(CrossEntropyRef, EqualsFiniteDifferences) {
  core::Rng rng(4);
  Case c(rng, 3, 11, 2, 2.0);
  c.RunRef();
  const size_t stride = c.args.logits.stride;
  std::vector<float> got, want;
  for (size_t l = 0; l < 3; ++l) {
    for (size_t v = 0; v < 13; ++v) {
      const auto loss = [&](double step) {
        double sum = 0.0;
        const auto x = [&](size_t i) { return c.logits[l * stride + i] + (i == v ? step : 0.0); };
        for (size_t i = 0; i < 11; ++i) sum += std::exp(x(i));
        return std::log(sum) - x(c.targets[l]);
      };
      constexpr double kStep = 0x1p-12;
      want.push_back(static_cast<float>(0.25 * (loss(kStep) - loss(-kStep)) / (2.0 * kStep)));
      got.push_back(c.want[l * stride + v]);
    }
    EXPECT_NE(c.targets[l], kIgnored);
  }
  EXPECT_TRUE(testing::CloseToScale(got, want, 1e-7));
}

}  // namespace
}  // namespace hognose::kernels
