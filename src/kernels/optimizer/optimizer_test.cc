#include "kernels/optimizer/optimizer.h"

#include <limits>

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

// Whole blocks, and ends of every kind.
constexpr size_t kSizes[] = {1, 15, 17, 1000, 32768, 70001};

struct State {
  std::vector<float> p, m, v;
};

AdamWArgs Point(AdamWArgs a, State& s) {
  a.p = {s.p.data(), s.p.size()};
  a.m = {s.m.data(), s.m.size()};
  a.v = {s.v.data(), s.v.size()};
  return a;
}

State RandomState(core::Rng& rng, size_t size) {
  return {RandomValues(rng, size, -1.0, 1.0), RandomValues(rng, size, -0.1, 0.1),
          RandomValues(rng, size, 0.0, 0.01)};
}

TEST(AdamW, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t size : kSizes) {
      for (const size_t step : {1, 2, 1000}) {
        const State start = RandomState(rng, size);
        const auto g = RandomValues(rng, size, -1.0, 1.0);
        State got = start, want = start;
        const AdamWArgs args = {.g = {g.data(), size},
                                .lr = 0.01,
                                .weight_decay = 0.1,
                                .gradient_scale = 0.37,
                                .step = step};
        AdamW(exec, Point(args, got));
        AdamWRef(Point(args, want));
        const double rate = 0.01 / (1.0 - std::pow(0.9, step));
        for (size_t i = 0; i < size; ++i) {
          // Each factor is rounded (1/2 eps), each operation too: 5 of them in m, 7 in v.
          const double m_eps = 3.0 * (std::abs(start.m[i]) + 0.1 * std::abs(0.37 * g[i]));
          ASSERT_NEAR(got.m[i], want.m[i], m_eps * kEpsF32) << i;
          ASSERT_NEAR(got.v[i], want.v[i], 4.0 * want.v[i] * kEpsF32) << i;
          // m's error through the quotient; half of v's, and 5 roundings, of the change itself; p's
          // own rounding and its factor's.
          const double root = std::sqrt(want.v[i] / (1.0 - std::pow(0.999, step)));
          const double change = rate * std::abs(want.m[i]) / root;
          const double p_eps = rate * m_eps / root + 6.0 * change + 1.5 * std::abs(start.p[i]);
          ASSERT_NEAR(got.p[i], want.p[i], p_eps * kEpsF32) << i;
        }
      }
    }
  });
}

// By hand: the first step's change is lr times the sign of the gradient, whatever its size.
TEST(AdamW, FirstStepByHand) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    for (const float gradient : {0.5f, 1e-3f, 5e20f}) {
      State s = {{1.0f, 1.0f, 1.0f}, std::vector<float>(3), std::vector<float>(3)};
      const std::vector<float> g = {gradient, -gradient, 0.0f};
      AdamW(exec, Point({.g = {g.data(), 3}, .lr = 0.1, .eps = 1e-12, .weight_decay = 0.01}, s));
      EXPECT_NEAR(s.p[0], 0.999 - 0.1, 4 * kEpsF32);
      EXPECT_NEAR(s.p[1], 0.999 + 0.1, 4 * kEpsF32);
      EXPECT_NEAR(s.p[2], 0.999, kEpsF32);
    }
  });
}

// f(p) = sum (p - goal)^2 / 2: the distance to the goal falls to the size of the last steps.
TEST(AdamW, FindsTheMinimumOfASquare) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  core::Rng rng(2);
  const size_t n = 33;
  const auto goal = RandomValues(rng, n, -1.0, 1.0);
  State s = {std::vector<float>(n), std::vector<float>(n), std::vector<float>(n)};
  std::vector<float> g(n);
  for (size_t step = 1; step <= 2000; ++step) {
    for (size_t i = 0; i < n; ++i) g[i] = s.p[i] - goal[i];
    const double lr = 0.01 * (1.0 - static_cast<double>(step - 1) / 2000.0);
    AdamW(exec, Point({.g = {g.data(), n}, .lr = lr, .step = step}, s));
  }
  EXPECT_TRUE(testing::Within(s.p, goal, 1e-3));
}

TEST(Sgd, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(3);
    for (const size_t size : kSizes) {
      for (const double momentum : {0.0, 0.9}) {
        const auto p = RandomValues(rng, size, -1.0, 1.0), g = RandomValues(rng, size, -1.0, 1.0);
        const auto buf = RandomValues(rng, size, -1.0, 1.0);
        auto got_p = p, got_buf = buf, want_p = p, want_buf = buf;
        SgdArgs args = {.p = {got_p.data(), size},
                        .buf = {got_buf.data(), momentum == 0.0 ? 0 : size},
                        .g = {g.data(), size},
                        .lr = 0.1,
                        .momentum = momentum,
                        .weight_decay = 0.1,
                        .gradient_scale = 0.37};
        Sgd(exec, args);
        args.p.data = want_p.data();
        args.buf.data = want_buf.data();
        SgdRef(args);
        // All lie in [-1, 1]. buf <= 1.3: two factors and three operations, half an eps each. p:
        // those times lr, and 3 of its own.
        ASSERT_TRUE(testing::Within(got_buf, want_buf, 3.0 * kEpsF32));
        ASSERT_TRUE(testing::Within(got_p, want_p, 3.0 * kEpsF32));
        if (momentum == 0.0) {
          ASSERT_TRUE(SameBits(got_buf, buf));
        }
      }
    }
  });
}

TEST(Optimizer, AnyThreadCountHasTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(4);
    const size_t size = 200001;
    const State start = RandomState(rng, size);
    const auto g = RandomValues(rng, size, -1.0, 1.0);
    std::vector<double> scratch(SumOfSquaresScratch(size));
    State first;
    double sum = 0.0;
    for (const size_t threads : {1, 2, 3}) {
      core::ThreadPool pool(threads);
      core::Exec exec{pool};
      State s = start;
      AdamW(exec, Point({.g = {g.data(), size}}, s));
      const double total = SumOfSquares(exec, {g.data(), size}, {scratch.data(), scratch.size()});
      if (threads == 1) {
        first = s;
        sum = total;
        continue;
      }
      ASSERT_TRUE(SameBits(s.p, first.p));
      ASSERT_TRUE(SameBits(s.m, first.m));
      ASSERT_TRUE(SameBits(s.v, first.v));
      ASSERT_EQ(total, sum);
    }
  });
}

TEST(SumOfSquares, EqualsTheOracleAndShowsWhatIsNotFinite) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(5);
    EXPECT_EQ(SumOfSquares(exec, {}, {}), 0.0);
    for (const size_t size : kSizes) {
      auto x = RandomValues(rng, size, -1.0, 1.0);
      std::vector<double> scratch(SumOfSquaresScratch(size));
      const auto sum = [&] {
        return SumOfSquares(exec, {x.data(), size}, {scratch.data(), scratch.size()});
      };
      // Both are sums of n terms, all positive.
      const double want = SumOfSquaresRef({x.data(), size});
      ASSERT_NEAR(sum(), want, 0x1p-52 * size * want);
      x[size / 2] = std::numeric_limits<float>::max();
      ASSERT_TRUE(std::isfinite(sum()));
      x[size - 1] = -std::numeric_limits<float>::infinity();
      ASSERT_FALSE(std::isfinite(sum()));
      x[size - 1] = 0.0f;
      x[0] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_FALSE(std::isfinite(sum()));
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
