#include <array>

#include "kernels/expm/dense_testing.h"
#include "kernels/expm/expm.h"
#include "kernels/expm/expm_pade.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

template <typename T>
struct Frechet {
  TestMat<T> y, dy;

  Frechet(const TestMat<T>& a, const TestMat<T>& e, ExpmLayout layout = ExpmLayout::kAuto,
          size_t threads = 2)
      : y(a.rows, a.cols), dy(y) {
    core::ThreadPool pool(threads);
    core::Exec exec{pool};
    std::vector<T> scratch(ExpmGradScratch<T>(a.cols, a.rows / a.cols));
    ExpmFrechet(exec, ExpmFrechetArgs<T>{.a = a.Mat(),
                                         .e = e.Mat(),
                                         .y = y.Mat(),
                                         .dy = dy.Mat(),
                                         .scratch = {scratch.data(), scratch.size()},
                                         .layout = layout});
  }
};

template <typename T>
TestMat<T> Grad(const TestMat<T>& a, const TestMat<T>& dy, ExpmLayout layout = ExpmLayout::kAuto) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  TestMat<T> da(a.rows, a.cols);
  std::vector<T> scratch(ExpmGradScratch<T>(a.cols, a.rows / a.cols));
  ExpmGrad(exec, ExpmGradArgs<T>{.a = a.Mat(),
                                 .dy = dy.Mat(),
                                 .da = da.Mat(),
                                 .scratch = {scratch.data(), scratch.size()},
                                 .layout = layout});
  return da;
}

// Central differences with h = 1e-4: h^2 / 6 of a third derivative is 2e-9 of exp(||a||) ||e||^3,
// where both norms are at most 1; rounding is eps / h = 2e-12.
TEST(ExpmFrechetRef, EqualsFiniteDifferences) {
  core::Rng rng(1);
  for (const size_t n : {1, 2, 5, 9}) {
    const TestMat<double> a = RandomMat<double>(rng, n, n, 1.0 / n),
                          e = RandomMat<double>(rng, n, n, 1.0 / n);
    TestMat<double> y(n, n), dy(n, n), up = a, down = a, high(n, n), low(n, n);
    ExpmFrechetRef<double>({.a = a.Mat(), .e = e.Mat(), .y = y.Mat(), .dy = dy.Mat()});
    constexpr double kStep = 1e-4;
    for (size_t i = 0; i < a.data.size(); ++i) {
      up.data[i] += kStep * e.data[i];
      down.data[i] -= kStep * e.data[i];
    }
    ExpmRef<double>({.a = up.Mat(), .y = high.Mat()});
    ExpmRef<double>({.a = down.Mat(), .y = low.Mat()});
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        EXPECT_NEAR(dy(i, j), (high(i, j) - low(i, j)) / (2 * kStep), 1e-8) << n;
      }
    }
  }
}

// The scheme does to (a, e) what Expm's does to the block matrix [[a, e], [0, a]] with sums of 2n
// products, so that matrix's bound holds for y and dy. The derivative is linear in e: a norm of 1
// says everything.
template <typename T>
void EqualsTheBlockMatrix() {
  core::Rng rng(2);
  for (const size_t n : {1, 2, 3, 5, 8, 16, 17, 31, 64}) {
    constexpr double kNorms[] = {0.01, 0.15, 0.7, 1.5, 4.0, 9.0};
    const size_t batch = n > 31 ? 2 : std::size(kNorms);
    TestMat<T> a = RandomMat<T>(rng, batch * n, n, 1.0), e = RandomMat<T>(rng, batch * n, n, 1.0);
    std::vector<double> bound;
    for (size_t i = 0; i < batch; ++i) {
      SetNorm(a, i, kNorms[i]);
      SetNorm(e, i, 1.0);
      TestMat<double> block(2 * n, 2 * n);
      for (size_t r = 0; r < n; ++r) {
        for (size_t c = 0; c < n; ++c) {
          block(r, c) = block(n + r, n + c) = a(i * n + r, c);
          block(r, n + c) = e(i * n + r, c);
          block(n + r, c) = 0.0;
        }
      }
      const auto norm = static_cast<T>(NormOf(a, i * n, n));
      bound.push_back(ExpmErrorBound(block, PlanPade(norm, true).squarings, 2 * n * kEpsOf<T>));
    }
    const TestMat<double> wide_a = Convert<double>(a), wide_e = Convert<double>(e);
    TestMat<double> y(batch * n, n), dy(batch * n, n);
    ExpmFrechetRef<double>({.a = wide_a.Mat(), .e = wide_e.Mat(), .y = y.Mat(), .dy = dy.Mat()});
    ForEachTarget([&] {
      const Frechet<T> got(a, e);
      const TestMat<double> got_y = Convert<double>(got.y), got_dy = Convert<double>(got.dy);
      for (size_t i = 0; i < batch; ++i) {
        EXPECT_LE(NormOf(got_y, i * n, n, &y), bound[i]) << n << " " << kNorms[i];
        EXPECT_LE(NormOf(got_dy, i * n, n, &dy), bound[i]) << n << " " << kNorms[i];
      }
    });
  }
}

TEST(ExpmFrechet, EqualsTheBlockMatrixOnEveryTarget) {
  EqualsTheBlockMatrix<float>();
  EqualsTheBlockMatrix<double>();
}

// <dy, L(a, e)> = <L(a^T, dy), e> for any e: both sides by kernels that share no transpose.
template <typename T>
void IsTheAdjoint() {
  core::Rng rng(3);
  for (const size_t n : {1, 3, 16, 33}) {
    const TestMat<T> a = RandomMat<T>(rng, 11 * n, n, 2.0 / n),
                     e = RandomMat<T>(rng, 11 * n, n, 1.0);
    const TestMat<T> dy = RandomMat<T>(rng, 11 * n, n, 1.0);
    const TestMat<T> along = Frechet<T>(a, e).dy, da = Grad(a, dy);
    for (size_t i = 0; i < 11; ++i) {
      double left = 0.0, right = 0.0, size = 0.0;
      for (size_t r = i * n; r < (i + 1) * n; ++r) {
        for (size_t c = 0; c < n; ++c) {
          left += static_cast<double>(dy(r, c)) * along(r, c);
          right += static_cast<double>(da(r, c)) * e(r, c);
          size += std::abs(static_cast<double>(dy(r, c)) * along(r, c)) +
                  std::abs(static_cast<double>(da(r, c)) * e(r, c));
        }
      }
      // Norms are below 2, without squarings (f64) or one: the block's bound is below 300 n eps,
      // of a norm to which every term of both sums is one of n parts.
      EXPECT_NEAR(left, right, 300 * n * kEpsOf<T> * size) << n;
    }
  }
}

TEST(ExpmGrad, IsTheAdjointOnEveryTarget) {
  ForEachTarget([] {
    IsTheAdjoint<float>();
    IsTheAdjoint<double>();
  });
}

template <typename T>
void SameBitsAlways() {
  core::Rng rng(4);
  for (const size_t n : {1, 5, 16, 17}) {
    TestMat<T> a = RandomMat<T>(rng, 40 * n, n, 1.0);
    const TestMat<T> e = RandomMat<T>(rng, 40 * n, n, 1.0);
    for (size_t i = 0; i < a.rows; ++i) {
      for (size_t j = 0; j < n; ++j) a(i, j) *= static_cast<T>(std::ldexp(1.0, i / n % 9) / 32);
    }
    const Frechet<T> want(a, e, ExpmLayout::kRows, 1);
    for (const ExpmLayout layout : {ExpmLayout::kAuto, ExpmLayout::kLanes}) {
      for (const size_t threads : {1, 2, 5}) {
        const Frechet<T> got(a, e, layout, threads);
        EXPECT_TRUE(SameMatrixBits(got.y, want.y)) << n;
        EXPECT_TRUE(SameMatrixBits(got.dy, want.dy)) << n;
      }
    }
    EXPECT_TRUE(SameMatrixBits(Grad(a, e, ExpmLayout::kLanes), Grad(a, e, ExpmLayout::kRows)));
  }
}

TEST(ExpmFrechet, LayoutAndThreadsDontChangeBits) {
  ForEachTarget([] {
    SameBitsAlways<float>();
    SameBitsAlways<double>();
  });
}

TEST(ExpmFrechet, InPlaceAndNotFinite) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(5);
  TestMat<double> a = RandomMat<double>(rng, 15, 5, 0.5);
  const TestMat<double> e = RandomMat<double>(rng, 15, 5, 0.5);
  a(7, 2) = std::numeric_limits<double>::infinity();
  ForEachTarget([&] {
    const Frechet<double> want(a, e);
    TestMat<double> y = a, dy = e, da = e;
    std::vector<double> scratch(ExpmGradScratch<double>(5, 3));
    ExpmFrechet(exec, ExpmFrechetArgs<double>{.a = y.Mat(),
                                              .e = dy.Mat(),
                                              .y = y.Mat(),
                                              .dy = dy.Mat(),
                                              .scratch = {scratch.data(), scratch.size()}});
    ExpmGrad(exec, ExpmGradArgs<double>{.a = a.Mat(),
                                        .dy = da.Mat(),
                                        .da = da.Mat(),
                                        .scratch = {scratch.data(), scratch.size()}});
    const TestMat<double> want_da = Grad(a, e);
    for (size_t r = 0; r < 15; ++r) {
      for (size_t c = 0; c < 5; ++c) {
        if (r / 5 == 1) {
          ASSERT_TRUE(std::isnan(y(r, c)) && std::isnan(dy(r, c)) && std::isnan(da(r, c)));
        } else {
          ASSERT_EQ(y(r, c), want.y(r, c));
          ASSERT_EQ(dy(r, c), want.dy(r, c));
          ASSERT_EQ(da(r, c), want_da(r, c));
        }
      }
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
