#include "kernels/regression_loss/regression_loss.h"

#include <limits>

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::Flatten;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

constexpr RegressionLossKind kKinds[] = {RegressionLossKind::kSquaredError,
                                         RegressionLossKind::kHuber};

struct Case {
  std::vector<float> predictions, targets, got, want;
  std::vector<double> losses, want_losses;
  RegressionLossArgs args;

  Case(core::Rng& rng, size_t l, size_t o, RegressionLossKind kind)
      : predictions(RandomValues(rng, l * (o + 1), -2.0, 2.0)),
        targets(RandomValues(rng, l * (o + 2), -2.0, 2.0)),
        got(l * (o + 3), 7.0f),
        want(got),
        losses(l, 7.0),
        want_losses(l) {
    args = {.predictions = {predictions.data(), l, o, o + 1},
            .targets = {targets.data(), l, o, o + 2},
            .gradient = {got.data(), l, o, o + 3},
            .kind = kind,
            .delta = 0.75f,
            .scale = 0.3f,
            .losses = {losses.data(), l}};
  }
  void RunRef() {
    RegressionLossArgs a = args;
    a.gradient.data = want.data();
    a.losses.data = want_losses.data();
    RegressionLossRef(a);
  }
};

TEST(RegressionLoss, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const auto kind : kKinds) {
      for (const size_t l : {1, 9, 3000}) {
        for (const size_t o : {1, 2, 7, 8, 17, 100}) {
          Case c(rng, l, o, kind);
          c.RunRef();
          RegressionLoss(exec, c.args);
          // Rounded from f64 values that differ in their last bits: at most one step of f32.
          for (size_t i = 0; i < c.want.size(); ++i) {
            ASSERT_NEAR(c.got[i], c.want[i], kEpsF32 * std::abs(c.want[i])) << l << " " << o;
          }
          for (size_t i = 0; i < l; ++i) {
            ASSERT_NEAR(c.losses[i], c.want_losses[i], (o + 4.0) * 0x1p-52 * c.want_losses[i]);
          }
          RegressionLossArgs only_loss = c.args;
          std::vector<double> again(l);
          only_loss.gradient = {};
          only_loss.losses.data = again.data();
          RegressionLoss(exec, only_loss);
          ASSERT_EQ(again, c.losses);
        }
      }
    }
  });
}

// One residual of each kind by hand, delta 0.75: inside, at the edge, outside on both sides.
TEST(RegressionLoss, ByHand) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    const std::vector<float> p = {1.5f, 0.75f, 3.0f, -3.0f}, t = {1.0f, 0.0f, 1.0f, -1.0f};
    std::vector<float> gradient(4);
    double loss = 0.0;
    RegressionLossArgs a = {.predictions = {p.data(), 1, 4, 4},
                            .targets = {t.data(), 1, 4, 4},
                            .gradient = {gradient.data(), 1, 4, 4},
                            .delta = 0.75f,
                            .scale = 2.0f,
                            .losses = {&loss, 1}};
    RegressionLoss(exec, a);
    EXPECT_EQ(gradient, (std::vector<float>{2.0f, 3.0f, 8.0f, -8.0f}));
    EXPECT_EQ(loss, 0.25 + 0.5625 + 4.0 + 4.0);
    a.kind = RegressionLossKind::kHuber;
    RegressionLoss(exec, a);
    EXPECT_EQ(gradient, (std::vector<float>{1.0f, 1.5f, 1.5f, -1.5f}));
    EXPECT_EQ(loss, 0.125 + 0.28125 + 2 * 0.75 * (2.0 - 0.375));
  });
}

TEST(RegressionLoss, TheGradientMayBeThePredictionsAndNaNShows) {
  core::ThreadPool pool(3);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    for (const auto kind : kKinds) {
      Case c(rng, 3000, 7, kind);
      RegressionLoss(exec, c.args);
      RegressionLossArgs a = c.args;
      a.gradient = {c.predictions.data(), 3000, 7, 8};
      RegressionLoss(exec, a);
      ASSERT_TRUE(SameBits(Flatten(a.gradient), Flatten(c.args.gradient)));
      for (size_t o = 0; o < 7; ++o) {
        c.predictions[8 * o + o] = std::numeric_limits<float>::quiet_NaN();
        a = c.args;
        RegressionLoss(exec, a);
        ASSERT_TRUE(std::isnan(c.losses[o])) << o;
      }
    }
  });
}

// Central differences with h = 2^-12 are exact for a square but for rounding, 2^-53 / h = 5e-13 of
// the loss. Residuals within h of Huber's edge would not be; the seed has none (checked).
TEST(RegressionLossRef, EqualsFiniteDifferences) {
  core::Rng rng(3);
  for (const auto kind : kKinds) {
    const size_t l = 4, o = 9;
    Case c(rng, l, o, kind);
    c.RunRef();
    std::vector<float> want;
    for (size_t row = 0; row < l; ++row) {
      for (size_t i = 0; i < o; ++i) {
        const double r =
            static_cast<double>(c.args.predictions.Row(row)[i]) - c.args.targets.Row(row)[i];
        const auto loss = [&](double step) {
          const double e = std::abs(r + step);
          if (kind == RegressionLossKind::kSquaredError) return e * e;
          return e <= 0.75 ? e * e / 2.0 : 0.75 * (e - 0.375);
        };
        constexpr double kStep = 0x1p-12;
        ASSERT_GT(std::abs(std::abs(r) - 0.75), kStep);
        want.push_back(
            static_cast<float>(c.args.scale * (loss(kStep) - loss(-kStep)) / (2.0 * kStep)));
      }
    }
    RegressionLossArgs a = c.args;
    a.gradient.data = c.want.data();
    EXPECT_TRUE(testing::CloseToScale(Flatten(a.gradient), want, kEpsF32));
  }
}

}  // namespace
}  // namespace hognose::kernels
