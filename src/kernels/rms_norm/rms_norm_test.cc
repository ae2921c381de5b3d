#include "kernels/rms_norm/rms_norm.h"

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

struct Case {
  std::vector<float> x, z, w, y, want;
  RmsNormArgs args;

  Case(core::Rng& rng, size_t l, size_t groups, size_t group, Gate gate, bool weight)
      : x(RandomValues(rng, l * (groups * group + 3), -3.0, 3.0)),
        z(RandomValues(rng, l * (groups * group + 1), -6.0, 6.0)),
        w(RandomValues(rng, groups * group, 0.5, 2.0)),
        y(l * (groups * group + 2), 7.0f),
        want(y) {
    const size_t n = groups * group;
    args.x = {x.data(), l, n, n + 3};
    args.z = {z.data(), l, n, n + 1};
    if (weight) args.w = {w.data(), n};
    args.y = {y.data(), l, n, n + 2};
    args.group = group;
    args.gate = gate;
  }
  RmsNormArgs Want() {
    RmsNormArgs a = args;
    a.y.data = want.data();
    return a;
  }
};

// Sum of `group` squares: half its relative error reaches y; the rest is a handful of operations
// and SiLU (exp 2^-22, a division).
double Tolerance(size_t group) { return (group + 16.0) * kEpsF32; }

TEST(RmsNorm, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const Gate gate : {Gate::kNone, Gate::kBeforeNorm, Gate::kAfterNorm}) {
      for (const size_t l : {1, 2, 9, 20}) {
        for (const size_t groups : {1, 2, 4}) {
          for (const size_t group : {1, 3, 16, 17, 31, 100}) {
            for (const bool weight : {true, false}) {
              Case c(rng, l, groups, group, gate, weight);
              RmsNormRef(c.Want());
              RmsNorm(exec, c.args);
              ASSERT_TRUE(CloseToScale(c.y, c.want, Tolerance(group)))
                  << static_cast<int>(gate) << " " << l << " " << groups << " " << group;
            }
          }
        }
      }
    }
  });
}

TEST(RmsNorm, GateWithoutNormAndInPlace) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    Case c(rng, 5, 1, 37, Gate::kBeforeNorm, false);
    c.args.normalize = false;
    RmsNormRef(c.Want());
    RmsNorm(exec, c.args);
    ASSERT_TRUE(CloseToScale(c.y, c.want, 16 * kEpsF32));

    Case apart(rng, 5, 2, 19, Gate::kBeforeNorm, true);
    RmsNorm(exec, apart.args);
    const auto want = testing::Flatten(apart.args.y);
    RmsNormArgs in_place = apart.args;
    in_place.y = {apart.x.data(), 5, 38, 41};
    RmsNorm(exec, in_place);
    ASSERT_TRUE(SameBits(testing::Flatten(in_place.y), want));
  });
}

TEST(RmsNorm, ExtremeGatesStayFinite) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    std::vector<float> x(8, 1.0f), y(8), want(8);
    std::vector<float> z = {-1e30f, -200.0f, -88.0f, -20.0f, 0.0f, 20.0f, 200.0f, 1e30f};
    RmsNormArgs a;
    a.x = {x.data(), 1, 8, 8};
    a.z = {z.data(), 1, 8, 8};
    a.y = {y.data(), 1, 8, 8};
    a.group = 8;
    a.normalize = false;
    a.gate = Gate::kBeforeNorm;
    RmsNorm(exec, a);
    for (size_t i = 0; i < 8; ++i) {
      const double silu = z[i] / (1.0 + std::exp(-static_cast<double>(z[i])));
      EXPECT_NEAR(y[i], silu, 4 * kEpsF32 * std::abs(silu) + 1e-35) << z[i];
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
