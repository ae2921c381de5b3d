#include "kernels/discretize/discretize.h"

#include "kernels/expm/dense_testing.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

using Method = DiscretizeMethod;
constexpr Method kMethods[] = {Method::kZeroOrderHold, Method::kBilinear, Method::kEuler};

template <typename T>
struct Case {
  size_t batch, n, m;
  bool diagonal;
  TestMat<T> a, b, abar, bbar;
  std::vector<T> dt;
  Method method;

  Case(core::Rng& rng, size_t systems, size_t states, size_t inputs, bool diag, Method how)
      : batch(systems),
        n(states),
        m(inputs),
        diagonal(diag),
        a(RandomMat<T>(rng, diag ? batch : batch * n, n, diag ? 4.0 : 2.0 / n)),
        b(RandomMat<T>(rng, batch * n, m, 1.0)),
        abar(a.rows, n),
        bbar(batch * n, m),
        method(how) {
    for (size_t i = 0; i < batch; ++i) dt.push_back(static_cast<T>(rng.Uniform(0.01, 0.5)));
  }
  DiscretizeArgs<T> Args() {
    return {.a = a.Mat(),
            .b = b.Mat(),
            .dt = {dt.data(), batch},
            .abar = abar.Mat(),
            .bbar = bbar.Mat(),
            .method = method};
  }
  void Run(size_t threads = 2) {
    core::ThreadPool pool(threads);
    core::Exec exec{pool};
    std::vector<T> scratch(DiscretizeScratch<T>(method, batch, n, m));
    DiscretizeArgs<T> args = Args();
    args.scratch = {scratch.data(), scratch.size()};
    diagonal ? DiscretizeDiagonal(exec, args) : Discretize(exec, args);
  }
  void RunRef() { diagonal ? DiscretizeDiagonalRef(Args()) : DiscretizeRef(Args()); }
};

// Dense: zero-order hold is exp of a block whose norm is below 2, no squarings: 8 (n + m) eps
// exp(2) (1 + exp(2)), expm.h's bound. Bilinear: LU of I - h a with ||h a|| < 1/2, so that both it
// and its inverse have norms below 2: 3 n eps of a factor and a solve, times 4. The same for Euler.
template <typename T>
void DenseEqualsTheOracle() {
  core::Rng rng(1);
  for (const Method method : kMethods) {
    for (const size_t n : {1, 2, 3, 5, 8, 16, 17, 31}) {
      for (const size_t m : {1, 3, 17}) {
        for (const size_t batch : {1, 9}) {
          Case<T> c(rng, batch, n, m, false, method);
          // Columns of b have norms below n; of dt b below 1.
          for (size_t i = 0; i < c.b.data.size(); ++i) c.b.data[i] /= static_cast<T>(n);
          Case<T> want = c;
          want.RunRef();
          c.Run();
          const double bound = 8 * (n + m) * kEpsOf<T> * std::exp(2.0) * (1 + std::exp(2.0));
          for (size_t i = 0; i < batch; ++i) {
            ASSERT_LE(NormOf(c.abar, i * n, n, &want.abar), bound) << n << " " << m;
            ASSERT_LE(NormOf(c.bbar, i * n, n, &want.bbar), bound) << n << " " << m;
          }
        }
      }
    }
  }
}

TEST(Discretize, EqualsTheOracleOnEveryTarget) {
  ForEachTarget([] {
    DenseEqualsTheOracle<float>();
    DenseEqualsTheOracle<double>();
  });
}

template <typename T>
void CompanyChangesNothing() {
  core::Rng rng(2);
  for (const Method method : kMethods) {
    Case<T> all(rng, 50, 7, 2, false, method);
    all.Run(1);
    for (const size_t threads : {2, 5}) {
      Case<T> again = all;
      again.Run(threads);
      ASSERT_TRUE(SameMatrixBits(again.abar, all.abar));
      ASSERT_TRUE(SameMatrixBits(again.bbar, all.bbar));
    }
    Case<T> alone(rng, 1, 7, 2, false, method);
    std::copy_n(all.a.data.begin() + 33 * 7 * 10, 7 * 10, alone.a.data.begin());
    std::copy_n(all.b.data.begin() + 33 * 7 * 5, 7 * 5, alone.b.data.begin());
    alone.dt[0] = all.dt[33];
    alone.Run();
    for (size_t i = 0; i < 7; ++i) {
      for (size_t j = 0; j < 7; ++j) ASSERT_EQ(alone.abar(i, j), all.abar(33 * 7 + i, j));
      for (size_t j = 0; j < 2; ++j) ASSERT_EQ(alone.bbar(i, j), all.bbar(33 * 7 + i, j));
    }
  }
}

TEST(Discretize, CompanyAndThreadsDontChangeBits) {
  ForEachTarget([] {
    CompanyChangesNothing<float>();
    CompanyChangesNothing<double>();
  });
}

// I - a / 2 * dt with dt = 2 and a = I - p is p: without row exchanges a division by 0.
template <typename T>
void NeedsPivots() {
  for (const size_t n : {2, 3, 8, 17, 31}) {
    for (const size_t batch : {1, 20}) {
      core::Rng rng(3);
      Case<T> c(rng, batch, n, 1, false, Method::kBilinear);
      for (size_t i = 0; i < batch; ++i) {
        c.dt[i] = 2;
        for (size_t r = 0; r < n; ++r) {
          for (size_t k = 0; k < n; ++k) {
            c.a(i * n + r, k) = T(r == k) - T((r + 1 + i % (n - 1)) % n == k);
          }
        }
      }
      c.Run();
      // p^-1 b dt: a permutation, so exact.
      for (size_t row = 0; row < batch * n; ++row) {
        const size_t i = row / n, to = (row % n + 1 + i % (n - 1)) % n;
        ASSERT_EQ(c.bbar(i * n + to, 0), 2 * c.b(row, 0)) << n << " " << row;
      }
    }
  }
}

TEST(Discretize, BilinearExchangesRows) {
  ForEachTarget([] {
    NeedsPivots<float>();
    NeedsPivots<double>();
  });
}

TEST(Discretize, SingularBilinearEnds) {
  ForEachTarget([] {
    core::Rng rng(4);
    Case<double> c(rng, 1, 2, 1, false, Method::kBilinear);
    c.dt[0] = 2.0;
    c.a(0, 0) = c.a(1, 1) = 1.0;
    c.a(0, 1) = c.a(1, 0) = 0.0;
    c.Run();
    EXPECT_FALSE(std::isfinite(c.abar(0, 0)));
  });
}

// exp and expm1 of Highway: 4 units in the last place, two more operations; dt a is rounded once.
template <typename T>
void DiagonalEqualsTheOracle() {
  core::Rng rng(5);
  for (const Method method : kMethods) {
    for (const size_t n : {1, 2, 3, 8, 16, 17, 31, 64}) {
      for (const size_t m : {1, 3}) {
        Case<T> c(rng, 5, n, m, true, method);
        // From where expm1 has few bits of z to where exp has nearly none of it left.
        constexpr double kValues[] = {0.0,   -0.0, 1e-30, -1e-12, 3e-7,
                                      -1e-3, 0.5,  -0.9,  -40.0,  60.0};
        for (size_t i = 0; i < n; ++i) c.a(0, i) = static_cast<T>(kValues[i % std::size(kValues)]);
        c.dt[0] = 1;
        Case<T> want = c;
        want.RunRef();
        c.Run();
        for (size_t r = 0; r < 5 * n; ++r) {
          const double z = std::abs(static_cast<double>(c.dt[r / n]) * c.a(r / n, r % n));
          const double allowed = 8 * kEpsOf<T> * (1 + z);
          // 1 + z cancels in Euler's and the bilinear method's abar.
          const double got = c.abar(r / n, r % n), expected = want.abar(r / n, r % n);
          const double scale = method == Method::kZeroOrderHold ? std::abs(expected) : 1 + z;
          const double near_pole = method == Method::kBilinear ? 1 / std::abs(1 - z / 2) : 1.0;
          ASSERT_LE(std::abs(got - expected),
                    allowed * std::max(1.0, near_pole) * std::max(scale, std::abs(expected)))
              << n << " " << r << " " << z;
          for (size_t k = 0; k < m; ++k) {
            ASSERT_LE(
                std::abs(c.bbar(r, k) - want.bbar(r, k)),
                allowed * std::max(1.0, near_pole) * std::abs(static_cast<double>(want.bbar(r, k))))
                << n << " " << r << " " << z;
          }
        }
      }
    }
  }
}

TEST(DiscretizeDiagonal, EqualsTheOracleOnEveryTarget) {
  ForEachTarget([] {
    DiagonalEqualsTheOracle<float>();
    DiagonalEqualsTheOracle<double>();
  });
}

TEST(DiscretizeDiagonal, ExtremesAndNan) {
  ForEachTarget([] {
    core::Rng rng(6);
    Case<double> c(rng, 1, 6, 1, true, Method::kZeroOrderHold);
    const double values[] = {-1e300, -745.0, 709.0, 1e300, std::nan(""), 0.0};
    for (size_t i = 0; i < 6; ++i) c.a(0, i) = values[i];
    c.dt[0] = 1.0;
    c.Run();
    EXPECT_EQ(c.abar(0, 0), 0.0);
    EXPECT_LT(c.abar(0, 1), 1e-300);
    EXPECT_NEAR(c.abar(0, 2) / std::exp(709.0), 1.0, 1e-15 * 709);
    EXPECT_TRUE(std::isinf(c.abar(0, 3)));
    EXPECT_TRUE(std::isnan(c.abar(0, 4)) && std::isnan(c.bbar(4, 0)));
    EXPECT_EQ(c.abar(0, 5), 1.0);
    EXPECT_EQ(c.bbar(5, 0), c.b(5, 0));
  });
}

// A dense system with a diagonal a is the diagonal one.
TEST(Discretize, DiagonalMatricesAgree) {
  core::Rng rng(7);
  for (const Method method : kMethods) {
    Case<double> dense(rng, 3, 4, 2, false, method), diagonal(rng, 3, 4, 2, true, method);
    std::fill(dense.a.data.begin(), dense.a.data.end(), 0.0);
    for (size_t r = 0; r < 12; ++r) dense.a(r, r % 4) = diagonal.a(r / 4, r % 4);
    dense.b = diagonal.b;
    dense.dt = diagonal.dt;
    dense.RunRef();
    diagonal.RunRef();
    for (size_t r = 0; r < 12; ++r) {
      EXPECT_NEAR(dense.abar(r, r % 4), diagonal.abar(r / 4, r % 4), 1e-14);
      for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(dense.bbar(r, k), diagonal.bbar(r, k), 1e-14);
    }
  }
}

}  // namespace
}  // namespace hognose::kernels
