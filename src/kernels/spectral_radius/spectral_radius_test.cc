#include "kernels/spectral_radius/spectral_radius.h"

#include "kernels/expm/dense_testing.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

template <typename T>
std::vector<T> Radii(const TestMat<T>& a, size_t threads = 2) {
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  const size_t batch = a.rows / a.cols;
  std::vector<T> rho(batch, T{-1});
  std::vector<double> scratch(SpectralRadiusScratch(a.cols, batch));
  SpectralRadius(exec, SpectralRadiusArgs<T>{.a = a.Mat(),
                                             .rho = {rho.data(), batch},
                                             .scratch = {scratch.data(), scratch.size()}});
  return rho;
}

// Matrix i = factor r b r^-1, r a reflection I - 2 v v^T (its own inverse) and b made of blocks
// [[c, -s], [s, c]] of modulus 1 and less, of a real entry where n is odd, and of `above` on the
// diagonals above them, which makes it far from normal.
template <typename T>
TestMat<T> Known(core::Rng& rng, size_t batch, size_t n, double factor, double above) {
  TestMat<T> a(batch * n, n);
  for (size_t i = 0; i < batch; ++i) {
    std::vector<double> b(n * n), v(n);
    double squares = 0.0;
    for (double& x : v) {
      x = rng.Uniform(-1, 1);
      squares += x * x;
    }
    for (size_t k = 0; k < n; k += 2) {
      const double modulus = k == 0 ? 1.0 : rng.Uniform(0, 1), angle = rng.Uniform(0, 3);
      b[k * n + k] = k + 1 < n ? modulus * std::cos(angle) : modulus;
      if (k + 1 == n) break;
      b[(k + 1) * n + k + 1] = b[k * n + k];
      b[k * n + k + 1] = -(b[(k + 1) * n + k] = modulus * std::sin(angle));
    }
    for (size_t r = 0; r < n; ++r) {
      for (size_t c = r / 2 * 2 + 2; c < n; ++c) b[r * n + c] = above * rng.Uniform(-1, 1);
    }
    for (const bool right : {false, true}) {  // r b, then (r b) r
      for (size_t k = 0; k < n; ++k) {
        const auto at = [&](size_t j) -> double& { return right ? b[k * n + j] : b[j * n + k]; };
        double dot = 0.0;
        for (size_t j = 0; j < n; ++j) dot += v[j] * at(j);
        for (size_t j = 0; j < n; ++j) at(j) -= 2 * dot / squares * v[j];
      }
    }
    for (size_t j = 0; j < n * n; ++j) a(i * n + j / n, j % n) = static_cast<T>(factor * b[j]);
  }
  return a;
}

// The operands' rounding moves an eigenvalue by eps ||a|| times its condition: below 100 for normal
// matrices (it is 1, their norms below n) and for a little above the diagonal; then (n k)^(2^-32).
template <typename T>
void KnowsEigenvalues() {
  core::Rng rng(1);
  for (const size_t n : {1, 2, 3, 5, 8, 16, 17, 31, 64}) {
    for (const double factor : {1.0, 0.9, 1e-30, 1e30}) {
      for (const double above : {0.0, 0.1}) {
        const TestMat<T> a = Known<T>(rng, 3, n, factor, above);
        for (const T rho : Radii(a)) {
          EXPECT_NEAR(rho / factor, 1.0, (above > 0 ? 100.0 : 2.0) * n * kEpsOf<T> + 1e-8) << n;
        }
      }
    }
  }
}

TEST(SpectralRadius, KnowsEigenvaluesOnEveryTarget) {
  ForEachTarget([] {
    KnowsEigenvalues<float>();
    KnowsEigenvalues<double>();
  });
}

TEST(SpectralRadius, DefectiveNilpotentZeroAndNotFinite) {
  ForEachTarget([] {
    for (const size_t n : {2, 16, 100}) {
      TestMat<double> a(5 * n, n);
      std::fill(a.data.begin(), a.data.end(), 0.0);
      for (size_t r = 0; r < n; ++r) {
        a(r, r) = 0.5;  // a Jordan block: powers grow as k^(n - 1), hence (n - 1) ln(k) / k
        if (r + 1 < n) a(r, r + 1) = 1.0;
        if (r + 1 < n) a(n + r, r + 1) = 3.0;
        a(3 * n + r, r) = 2.0;
        a(4 * n + r, r) = r == 0 ? std::numeric_limits<double>::infinity() : 1.0;
      }
      a(3 * n + 1, 0) = std::nan("");
      const std::vector<double> rho = Radii(a);
      // Beyond about 1,000 / (n - 1) squarings the diagonal underflows beside the corner: for
      // n = 100 the tenth or so is the last that counts.
      const double allowed = n < 100 ? 1e-6 : 0.1;
      EXPECT_GE(rho[0], 0.5 * (1 - 1e-12)) << n;
      EXPECT_LE(rho[0], 0.5 * (1 + allowed)) << n;
      EXPECT_EQ(rho[1], 0.0) << n;
      EXPECT_EQ(rho[2], 0.0) << n;
      EXPECT_TRUE(std::isnan(rho[3])) << n;
      EXPECT_TRUE(std::isnan(rho[4])) << n;
    }
  });
}

TEST(SpectralRadius, ThreadsDontChangeBits) {
  core::Rng rng(2);
  const TestMat<float> a = RandomMat<float>(rng, 50 * 13, 13, 1.0);
  ForEachTarget([&] {
    const std::vector<float> want = Radii(a, 1);
    EXPECT_EQ(Radii(a, 2), want);
    EXPECT_EQ(Radii(a, 5), want);
  });
}

template <typename T>
void KeepsTheBound() {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(3);
  TestMat<T> a = Known<T>(rng, 2, 9, 1.0, 0.1);
  for (size_t r = 9; r < 18; ++r) {
    for (size_t c = 0; c < 9; ++c) a(r, c) *= T{0.5};
  }
  const TestMat<T> before = a;
  std::vector<T> rho(2);
  std::vector<double> scratch(SpectralRadiusScratch(9, 2));
  ProjectSpectralRadius(exec,
                        ProjectSpectralRadiusArgs<T>{.a = a.Mat(),
                                                     .max_radius = T{0.75},
                                                     .rho = {rho.data(), 2},
                                                     .scratch = {scratch.data(), scratch.size()}});
  const std::vector<T> after = Radii(a);
  EXPECT_NEAR(rho[0], 1.0, 1e-4);
  EXPECT_NEAR(after[0], 0.75, 900 * kEpsOf<T> + 1e-8);
  EXPECT_EQ(after[1], rho[1]);
  for (size_t r = 0; r < 18; ++r) {
    for (size_t c = 0; c < 9; ++c) {
      if (r >= 9) {
        EXPECT_EQ(a(r, c), before(r, c));
      } else {
        EXPECT_NEAR(a(r, c), before(r, c) * 0.75 / rho[0], 2 * kEpsOf<T>);
      }
    }
  }
}

TEST(ProjectSpectralRadius, KeepsTheBound) {
  ForEachTarget([] {
    KeepsTheBound<float>();
    KeepsTheBound<double>();
  });
}

TEST(LeastALog, IsTheBound) {
  for (const double r : {0.5, 0.9, 0.999}) {
    for (const double dt : {0.001, 0.05, 1.0}) {
      const double a_log = LeastALog(r, dt);
      EXPECT_NEAR(std::exp(-std::exp(a_log) * dt), r, 1e-14);
    }
  }
}

TEST(ProjectALog, RaisesToTheBoundOnly) {
  const double least = LeastALog(0.9, 0.01);
  std::vector<float> a_log = {-5.0f, static_cast<float>(least) - 0.1f, 4.0f};
  ProjectALog({a_log.data(), 3}, least);
  for (const float v : a_log) EXPECT_LE(std::exp(-std::exp(static_cast<double>(v)) * 0.01), 0.9);
  EXPECT_NEAR(a_log[0], least, 1e-6);
  EXPECT_EQ(a_log[0], a_log[1]);
  EXPECT_EQ(a_log[2], 4.0f);
}

}  // namespace
}  // namespace hognose::kernels
