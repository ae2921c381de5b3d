#include "kernels/expm/expm.h"

#include <type_traits>

#include "kernels/expm/dense_testing.h"
#include "kernels/expm/expm_pade.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

constexpr size_t kSizes[] = {1, 2, 3, 5, 8, 16, 17, 31};

template <typename T>
TestMat<T> Exp(const TestMat<T>& a, ExpmLayout layout = ExpmLayout::kAuto, size_t threads = 2) {
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  TestMat<T> y(a.rows, a.cols);
  std::vector<T> scratch(ExpmScratch<T>(a.cols, a.rows / a.cols));
  Expm(exec, ExpmArgs<T>{.a = a.Mat(),
                         .y = y.Mat(),
                         .scratch = {scratch.data(), scratch.size()},
                         .layout = layout});
  return y;
}

template <typename T>
TestMat<T> ExpRef(const TestMat<T>& a) {
  TestMat<T> y(a.rows, a.cols);
  ExpmRef<T>({.a = a.Mat(), .y = y.Mat()});
  return y;
}

// Of matrix i.
template <typename T>
double ErrorBound(const TestMat<T>& a, size_t i) {
  const size_t n = a.cols;
  TestMat<double> m(n, n);
  for (size_t r = 0; r < n; ++r) {
    for (size_t c = 0; c < n; ++c) m(r, c) = a(i * n + r, c);
  }
  const auto norm = static_cast<T>(NormOf(a, i * n, n));
  return ExpmErrorBound(m, PlanPade(norm, false).squarings, n * kEpsOf<T>);
}

template <typename T>
void EqualsTheOracle() {
  core::Rng rng(1);
  for (const size_t n : kSizes) {
    // Norms of every order, and of several squarings.
    constexpr double kNorms[] = {1e-3, 0.1, 0.4, 0.9, 1.8, 3.5, 5.0, 9.0, 40.0};
    TestMat<T> a = RandomMat<T>(rng, std::size(kNorms) * n, n, 1.0);
    for (size_t i = 0; i < std::size(kNorms); ++i) SetNorm(a, i, kNorms[i]);
    // In doubles, so that the oracle's own rounding is far below f32's.
    const TestMat<double> want = ExpRef(Convert<double>(a));
    std::vector<double> bound;
    for (size_t i = 0; i < std::size(kNorms); ++i) bound.push_back(ErrorBound(a, i));
    ForEachTarget([&] {
      const TestMat<double> got = Convert<double>(Exp(a));
      for (size_t i = 0; i < std::size(kNorms); ++i) {
        EXPECT_LE(NormOf(got, i * n, n, &want), bound[i]) << n << " " << kNorms[i];
      }
    });
  }
}

TEST(Expm, EqualsTheOracleOnEveryTarget) {
  EqualsTheOracle<float>();
  EqualsTheOracle<double>();
}

template <typename T>
void SameBitsAlways() {
  core::Rng rng(2);
  for (const size_t n : {1, 2, 5, 16, 17, 23}) {
    // Orders and squarings mixed, so that packs are cut and lanes finish at different times.
    TestMat<T> a = RandomMat<T>(rng, 83 * n, n, 1.0);
    for (size_t i = 0; i < a.rows; ++i) {
      for (size_t j = 0; j < n; ++j) a(i, j) *= static_cast<T>(std::ldexp(1.0, i / n % 12) / 64);
    }
    const TestMat<T> want = Exp(a, ExpmLayout::kRows, 1);
    EXPECT_TRUE(SameMatrixBits(Exp(a, ExpmLayout::kLanes, 1), want)) << n;
    for (const size_t threads : {1, 2, 5}) {
      EXPECT_TRUE(SameMatrixBits(Exp(a, ExpmLayout::kAuto, threads), want)) << n << " " << threads;
    }
    TestMat<T> alone(n, n);
    for (size_t i = 0; i < n; ++i) std::copy_n(&a(11 * n + i, 0), n, &alone(i, 0));
    const TestMat<T> got = Exp(alone);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) ASSERT_EQ(got(i, j), want(11 * n + i, j)) << n;
    }
  }
}

TEST(Expm, LayoutThreadsAndCompanyDontChangeBits) {
  ForEachTarget([] {
    SameBitsAlways<float>();
    SameBitsAlways<double>();
  });
}

TEST(Expm, InPlaceAndLarge) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(3);
  const TestMat<double> a = RandomMat<double>(rng, 128, 64, 0.1);
  const TestMat<double> want = ExpRef(a);
  ForEachTarget([&] {
    TestMat<double> in_place = a;
    std::vector<double> scratch(ExpmScratch<double>(64, 2));
    Expm(exec, ExpmArgs<double>{.a = in_place.Mat(),
                                .y = in_place.Mat(),
                                .scratch = {scratch.data(), scratch.size()}});
    EXPECT_TRUE(SameMatrixBits(in_place, Exp(a)));
    for (const size_t i : {0, 1}) {
      EXPECT_LE(NormOf(in_place, i * 64, 64, &want), ErrorBound(a, i));
    }
  });
}

// r diag(v) r with a reflection r, whose exponential is r diag(exp(v)) r. ||a||_1 is below 4 times
// the largest |v|, 1/2: 8 n eps exp(2) (1 + exp(2)).
TEST(Expm, KnowsReflectedDiagonals) {
  for (const size_t n : {65, 130, 256}) {
    core::Rng rng(6);
    std::vector<double> axis(n), values(n);
    double squares = 0.0;
    for (size_t i = 0; i < n; ++i) {
      axis[i] = rng.Uniform(0.5, 1.0);
      squares += axis[i] * axis[i];
      values[i] = rng.Uniform(-0.5, 0.5);
    }
    // r = I - 2 axis axis^T / squares, so that (r d r)_ij is a sum over d of two rows of r.
    const auto reflected = [&](const auto& diagonal) {
      double weighted = 0.0;  // sum of axis^2 d
      for (size_t k = 0; k < n; ++k) weighted += axis[k] * axis[k] * diagonal(k);
      TestMat<double> m(n, n);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          m(i, j) = (i == j ? diagonal(i) : 0.0) +
                    2 / squares * axis[i] * axis[j] *
                        (2 / squares * weighted - diagonal(i) - diagonal(j));
        }
      }
      return m;
    };
    const TestMat<double> a = reflected([&](size_t k) { return values[k]; });
    const TestMat<double> want = reflected([&](size_t k) { return std::exp(values[k]); });
    ASSERT_LE(NormOf(a, 0, n), 2.0);
    ForEachTarget([&] {
      EXPECT_LE(NormOf(Exp(a), 0, n, &want),
                8 * n * kEpsOf<double> * std::exp(2.0) * (1 + std::exp(2.0)))
          << n;
    });
  }
}

// A matrix with something that is no finite number, or whose norm isn't one, is NaN; its
// neighbours are not touched. Huge norms end.
template <typename T>
void ExtremesStayApart() {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  constexpr T kMax = std::numeric_limits<T>::max();
  for (const size_t n : {1, 3, 16}) {
    core::Rng rng(4);
    TestMat<T> a = RandomMat<T>(rng, 9 * n, n, 0.5);
    const TestMat<T> want = Exp(a);
    a(2 * n, n - 1) = std::numeric_limits<T>::quiet_NaN();
    a(4 * n + n - 1, 0) = -kInf;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) a(6 * n + i, j) = i == j ? -kMax / 2 : T{0};
      for (size_t j = 0; j < n; ++j) a(7 * n + i, j) = n > 1 ? kMax : kInf;
      for (size_t j = 0; j < n; ++j) a(8 * n + i, j) = i == j ? kMax / 4 : T{0};
    }
    for (const ExpmLayout layout : {ExpmLayout::kLanes, ExpmLayout::kRows}) {
      const TestMat<T> got = Exp(a, layout);
      for (size_t r = 0; r < 9 * n; ++r) {
        for (size_t j = 0; j < n; ++j) {
          const size_t i = r / n;
          if (i == 2 || i == 4 || i == 7) {
            ASSERT_TRUE(std::isnan(got(r, j))) << i;
          } else if (i == 6) {
            ASSERT_EQ(got(r, j), 0) << i;
          } else if (i == 8) {
            ASSERT_FALSE(std::isfinite(got(r, j)) && r % n == j) << i;
          } else {
            ASSERT_EQ(got(r, j), want(r, j)) << i;
          }
        }
      }
    }
  }
}

TEST(Expm, ExtremesStayApart) {
  ForEachTarget([] {
    ExtremesStayApart<float>();
    ExtremesStayApart<double>();
  });
}

TEST(Expm, ZeroGivesTheIdentity) {
  ForEachTarget([] {
    TestMat<double> a(17, 17);
    std::fill(a.data.begin(), a.data.end(), 0.0);
    const TestMat<double> y = Exp(a);
    for (size_t i = 0; i < 17; ++i) {
      for (size_t j = 0; j < 17; ++j) EXPECT_EQ(y(i, j), i == j ? 1.0 : 0.0);
    }
  });
}

// exp of a triangle of equal entries c on the diagonal and one above it: known in closed form.
TEST(ExpmRef, KnowsClosedForms) {
  TestMat<double> a(4, 2);
  a(0, 0) = a(1, 1) = -3.0;
  a(0, 1) = 5.0;
  a(1, 0) = 0.0;
  a(2, 0) = a(3, 1) = 0.0;
  a(2, 1) = -(a(3, 0) = 2.0);
  const TestMat<double> y = ExpRef(a);
  EXPECT_NEAR(y(0, 0), std::exp(-3.0), 1e-17);
  EXPECT_NEAR(y(0, 1), 5 * std::exp(-3.0), 1e-16);
  EXPECT_EQ(y(1, 0), 0.0);
  EXPECT_NEAR(y(2, 0), std::cos(2.0), 2e-16);
  EXPECT_NEAR(y(3, 0), std::sin(2.0), 2e-16);
}

TEST(PadePlan, TakesTheLeastOrderAndBoundsTheSquarings) {
  const auto expect = [](PadePlan plan, size_t order, size_t squarings) {
    EXPECT_EQ(plan.order, order);
    EXPECT_EQ(plan.squarings, squarings);
  };
  expect(PlanPade(0.0, false), 3, 0);
  expect(PlanPade(0.0149, false), 3, 0);
  expect(PlanPade(0.0149, true), 5, 0);
  expect(PlanPade(0.9504, false), 7, 0);
  expect(PlanPade(2.0978, false), 9, 0);
  expect(PlanPade(2.0979, false), 13, 0);
  expect(PlanPade(5.3719, false), 13, 0);
  expect(PlanPade(5.3720, false), 13, 1);
  expect(PlanPade(4 * 5.3719203511481523, false), 13, 2);
  expect(PlanPade(std::numeric_limits<double>::max() / 2, false), 13, 1021);
  expect(PlanPade(0.4258f, false), 3, 0);
  expect(PlanPade(3.9258f, false), 7, 1);
  expect(PlanPade(std::numeric_limits<float>::max() / 2, true), 7, 126);
}

// A strict triangle of large entries needs no squaring: its sixth power is 0. Exact to a few units
// where ||a||_1 alone would ask for 15 squarings.
TEST(Expm, PowersSaveSquarings) {
  ForEachTarget([] {
    core::Rng rng(5);
    TestMat<double> a = RandomMat<double>(rng, 5, 5, 1e5);
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j <= i; ++j) a(i, j) = 0.0;
    }
    const TestMat<double> got = Exp(a), want = ExpRef(a);
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 5; ++j) {
        EXPECT_NEAR(got(i, j), want(i, j), 64 * kEpsOf<double> * std::abs(want(i, j)));
      }
    }
  });
}

TEST(ChooseExpmLayout, FillsTheLanes) {
  EXPECT_EQ(ChooseExpmLayout(16, 1, 8), ExpmLayout::kRows);
  EXPECT_EQ(ChooseExpmLayout(16, 1000, 8), ExpmLayout::kLanes);
  EXPECT_EQ(ChooseExpmLayout(5, 8, 8), ExpmLayout::kLanes);
  EXPECT_EQ(ChooseExpmLayout(64, 1000, 8), ExpmLayout::kRows);
}

}  // namespace
}  // namespace hognose::kernels
