#include <functional>

#include "kernels/discretize/discretize.h"
#include "kernels/expm/dense_testing.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

using Method = DiscretizeMethod;
constexpr Method kMethods[] = {Method::kZeroOrderHold, Method::kBilinear, Method::kEuler};

template <typename T>
struct GradCase {
  size_t batch, n, m;
  bool diagonal;
  TestMat<T> a, b, dabar, dbbar, da, db;
  std::vector<T> dt, ddt;
  Method method;

  GradCase(core::Rng& rng, size_t systems, size_t states, size_t inputs, bool diag, Method how)
      : batch(systems),
        n(states),
        m(inputs),
        diagonal(diag),
        a(RandomMat<T>(rng, diag ? batch : batch * n, n, diag ? 3.0 : 2.0 / n)),
        b(RandomMat<T>(rng, batch * n, m, 1.0 / n)),
        dabar(RandomMat<T>(rng, a.rows, n, 1.0)),
        dbbar(RandomMat<T>(rng, batch * n, m, 1.0)),
        da(a.rows, n),
        db(batch * n, m),
        ddt(batch, T{7}),
        method(how) {
    for (size_t i = 0; i < batch; ++i) dt.push_back(static_cast<T>(rng.Uniform(0.01, 0.5)));
  }
  DiscretizeGradArgs<T> Args() {
    return {.a = a.Mat(),
            .b = b.Mat(),
            .dt = {dt.data(), batch},
            .dabar = dabar.Mat(),
            .dbbar = dbbar.Mat(),
            .da = da.Mat(),
            .db = db.Mat(),
            .ddt = {ddt.data(), batch},
            .method = method};
  }
  void Run(size_t threads = 2) {
    core::ThreadPool pool(threads);
    core::Exec exec{pool};
    std::vector<T> scratch(DiscretizeGradScratch<T>(method, batch, n, m));
    DiscretizeGradArgs<T> args = Args();
    args.scratch = {scratch.data(), scratch.size()};
    diagonal ? DiscretizeDiagonalGrad(exec, args) : DiscretizeGrad(exec, args);
  }
  void RunRef() { diagonal ? DiscretizeDiagonalGradRef(Args()) : DiscretizeGradRef(Args()); }
  // The sum of dabar abar and dbbar bbar, by the forward oracle.
  double Objective() {
    TestMat<T> abar(a.rows, n), bbar(batch * n, m);
    const DiscretizeArgs<T> args = {.a = a.Mat(),
                                    .b = b.Mat(),
                                    .dt = {dt.data(), batch},
                                    .abar = abar.Mat(),
                                    .bbar = bbar.Mat(),
                                    .method = method};
    diagonal ? DiscretizeDiagonalRef(args) : DiscretizeRef(args);
    double sum = 0.0;
    for (size_t i = 0; i < a.rows; ++i) {
      for (size_t j = 0; j < n; ++j) sum += dabar(i, j) * abar(i, j);
    }
    for (size_t i = 0; i < batch * n; ++i) {
      for (size_t j = 0; j < m; ++j) sum += dbbar(i, j) * bbar(i, j);
    }
    return sum;
  }
};

// h = 2^-14: h^2 / 6 of a third derivative of at most 100 is 6e-8, rounding 1e-15 / h of sums of
// about 10 is 2e-10.
TEST(DiscretizeGradRef, EqualsFiniteDifferences) {
  core::Rng rng(1);
  for (const bool diagonal : {false, true}) {
    for (const Method method : kMethods) {
      GradCase<double> c(rng, 2, 3, 2, diagonal, method);
      if (diagonal) c.a(0, 0) = 0.0;  // where phi is a limit
      c.RunRef();
      constexpr double kStep = 0x1p-14;
      const auto check = [&](double& at, double got) {
        const double kept = at;
        at = kept + kStep;
        const double up = c.Objective();
        at = kept - kStep;
        const double down = c.Objective();
        at = kept;
        EXPECT_NEAR(got, (up - down) / (2 * kStep), 1e-7) << diagonal;
      };
      for (size_t i = 0; i < c.a.rows; ++i) {
        for (size_t j = 0; j < c.n; ++j) check(c.a(i, j), c.da(i, j));
      }
      for (size_t i = 0; i < c.b.rows; ++i) {
        for (size_t j = 0; j < c.m; ++j) check(c.b(i, j), c.db(i, j));
      }
      for (size_t i = 0; i < c.batch; ++i) check(c.dt[i], c.ddt[i]);
    }
  }
}

template <typename T>
double Largest(const TestMat<T>& m) {
  double largest = 0.0;
  for (size_t i = 0; i < m.rows; ++i) {
    for (size_t j = 0; j < m.cols; ++j) {
      largest = std::max(largest, std::abs(static_cast<double>(m(i, j))));
    }
  }
  return largest;
}

// The blocks' norms are below 2 (forward test), the derivative's sums twice as long and its
// direction has entries of at most 1 in n + m rows: 16 (n + m) eps exp(2) (1 + exp(2)) of the
// gradients' scale, the largest entry where everything is 1. The bilinear method's three products
// and an inverse with norms below 2 stay within. ddt sums n (n + m) of them: in f64, so that no
// more is lost.
template <typename T>
void EqualsTheOracle(bool diagonal) {
  core::Rng rng(2);
  for (const Method method : kMethods) {
    for (const size_t n : {1, 2, 3, 8, 16, 17, 31}) {
      for (const size_t m : {1, 5}) {
        for (const size_t batch : {1, 9}) {
          GradCase<T> c(rng, batch, n, m, diagonal, method);
          GradCase<T> want = c;
          want.RunRef();
          c.Run();
          const double bound = 16 * (n + m) * kEpsOf<T> * std::exp(2.0) * (1 + std::exp(2.0));
          const auto compare = [&](const TestMat<T>& got, const TestMat<T>& expected) {
            const double allowed = bound * Largest(expected);
            for (size_t i = 0; i < got.rows; ++i) {
              for (size_t j = 0; j < got.cols; ++j) {
                ASSERT_NEAR(got(i, j), expected(i, j), allowed) << n << " " << m;
              }
            }
          };
          compare(c.da, want.da);
          compare(c.db, want.db);
          const double terms = n * Largest(want.a) * Largest(want.dabar) * (diagonal ? 20.0 : n) +
                               n * m * Largest(want.b) * 20.0;
          for (size_t i = 0; i < batch; ++i) {
            ASSERT_NEAR(c.ddt[i], want.ddt[i], bound * terms) << n << " " << m;
          }
        }
      }
    }
  }
}

TEST(DiscretizeGrad, EqualsTheOracleOnEveryTarget) {
  ForEachTarget([] {
    EqualsTheOracle<float>(false);
    EqualsTheOracle<double>(false);
  });
}

TEST(DiscretizeDiagonalGrad, EqualsTheOracleOnEveryTarget) {
  ForEachTarget([] {
    EqualsTheOracle<float>(true);
    EqualsTheOracle<double>(true);
  });
}

template <typename T>
void SameBitsAlways(bool diagonal) {
  core::Rng rng(3);
  for (const Method method : kMethods) {
    GradCase<T> want(rng, 60, 9, 2, diagonal, method);
    want.Run(1);
    for (const size_t threads : {2, 5}) {
      GradCase<T> got = want;
      got.Run(threads);
      ASSERT_TRUE(SameMatrixBits(got.da, want.da));
      ASSERT_TRUE(SameMatrixBits(got.db, want.db));
      ASSERT_EQ(got.ddt, want.ddt);
    }
    // In place.
    GradCase<T> over = want;
    over.da = over.dabar;
    over.db = over.dbbar;
    DiscretizeGradArgs<T> args = over.Args();
    args.dabar = over.da.Mat();
    args.dbbar = over.db.Mat();
    std::vector<T> scratch(DiscretizeGradScratch<T>(method, 60, 9, 2));
    args.scratch = {scratch.data(), scratch.size()};
    core::ThreadPool pool(2);
    core::Exec exec{pool};
    diagonal ? DiscretizeDiagonalGrad(exec, args) : DiscretizeGrad(exec, args);
    ASSERT_TRUE(SameMatrixBits(over.da, want.da));
    ASSERT_TRUE(SameMatrixBits(over.db, want.db));
  }
}

TEST(DiscretizeGrad, ThreadsAndPlaceDontChangeBits) {
  ForEachTarget([] {
    for (const bool diagonal : {false, true}) {
      SameBitsAlways<float>(diagonal);
      SameBitsAlways<double>(diagonal);
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
