#include <functional>

#include "kernels/rms_norm/rms_norm.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::Flatten;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;
using testing::Within;

double Silu(double z) { return z / (1.0 + std::exp(-z)); }

struct Outputs {
  std::vector<float> dx, dz, dw, y;
};

struct Case {
  std::vector<float> x, z, w, dy, scratch;
  Outputs got, want;
  RmsNormGradArgs args;

  Case(core::Rng& rng, size_t l, size_t groups, size_t group, Gate gate, bool weight)
      : x(RandomValues(rng, l * (groups * group + 3), -3.0, 3.0)),
        z(RandomValues(rng, l * (groups * group + 1), -6.0, 6.0)),
        w(RandomValues(rng, groups * group, 0.5, 2.0)),
        dy(RandomValues(rng, l * (groups * group + 5), -1.0, 1.0)) {
    const size_t n = groups * group;
    scratch.resize(RmsNormGradScratch(l, n), 7.0f);
    args.x = {x.data(), l, n, n + 3};
    args.z = {z.data(), l, n, n + 1};
    args.dy = {dy.data(), l, n, n + 5};
    if (weight) args.w = {w.data(), n};
    args.group = group;
    args.gate = gate;
    args.scratch = {scratch.data(), scratch.size()};
    // dx and dw begin with values that are added to or overwritten.
    got = {RandomValues(rng, l * (n + 2), -1.0, 1.0), std::vector<float>(l * (n + 4)),
           RandomValues(rng, n, -1.0, 1.0), std::vector<float>(l * n)};
    want = got;
    Point(args, got);
  }
  static void Point(RmsNormGradArgs& a, Outputs& o) {
    const size_t l = a.x.rows, n = a.x.cols;
    a.dx = {o.dx.data(), l, n, n + 2};
    a.dz = {o.dz.data(), l, n, n + 4};
    a.dw = {o.dw.data(), n};
    a.y = {o.y.data(), l, n, n};
  }
  void RunRef() {
    RmsNormGradArgs a = args;
    Point(a, want);
    RmsNormGradRef(a);
  }
};

// The sums over a group, of v^2 and of v g, have a relative error of at most group / 2 eps of the
// sums of magnitudes; rho gets half of the first, rho^2 mean(v g) so at most group eps of
// rho max|g| (Cauchy-Schwarz), times |v rho|. 32: SiLU and its slope (exp 2^-22, sums, divisions:
// 12 eps together), their products, and what is added to. dw adds l rounded terms.
void CheckAgainstOracle(const Case& c, bool dz) {
  const RmsNormGradArgs& a = c.args;
  double dv = 0.0, unit = 0.0, h_max = 0.0, silu = 1.0, w_max = 1.0;
  for (size_t l = 0; l < a.x.rows; ++l) {
    for (size_t begin = 0; begin < a.x.cols; begin += a.group) {
      double squares = 0.0, v_max = 0.0, g_max = 0.0;
      for (size_t i = begin; i < begin + a.group; ++i) {
        const double s = a.gate == Gate::kNone ? 1.0 : Silu(a.z.Row(l)[i]);
        const double v = a.x.Row(l)[i] * (a.gate == Gate::kBeforeNorm ? s : 1.0);
        const double h = a.dy.Row(l)[i] * (a.gate == Gate::kAfterNorm ? s : 1.0);
        if (a.w.size != 0) w_max = std::max<double>(w_max, a.w[i]);
        squares += v * v;
        v_max = std::max(v_max, std::abs(v));
        g_max = std::max(g_max, std::abs(h * (a.w.size != 0 ? a.w[i] : 1.0)));
        h_max = std::max(h_max, std::abs(h));
        silu = std::max(silu, std::abs(s));
      }
      const double rho = a.normalize ? 1.0 / std::sqrt(squares / a.group + a.eps) : 1.0;
      unit = std::max(unit, v_max * rho);
      dv = std::max(dv, rho * g_max * std::max(1.0, a.normalize ? v_max * rho : 0.0));
    }
  }
  const double unit_eps = (a.group + 32.0) * kEpsF32;
  // |x| <= 3, |silu'| <= 1.1, |dy| <= 1, and dx, dw begin at up to 1.
  const double before = a.gate == Gate::kBeforeNorm ? silu : 1.0;
  ASSERT_TRUE(Within(c.got.dx, c.want.dx, unit_eps * (dv * before + 1.0)));
  ASSERT_TRUE(Within(c.got.y, c.want.y, unit_eps * unit * w_max * silu));
  if (dz) {
    const double dsilu = a.gate == Gate::kBeforeNorm ? 3.0 * dv : w_max * unit;
    ASSERT_TRUE(Within(c.got.dz, c.want.dz, unit_eps * 1.1 * dsilu));
  }
  const double terms = static_cast<double>(a.x.rows);
  ASSERT_TRUE(Within(c.got.dw, c.want.dw,
                     (a.group + 32.0 + terms) * kEpsF32 * (terms * h_max * unit + 1.0)));
}

TEST(RmsNormGrad, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const Gate gate : {Gate::kNone, Gate::kBeforeNorm, Gate::kAfterNorm}) {
      for (const size_t l : {1, 9, 20}) {
        for (const size_t groups : {1, 3}) {
          for (const size_t group : {1, 3, 16, 17, 31, 100}) {
            for (const bool weight : {true, false}) {
              Case c(rng, l, groups, group, gate, weight);
              c.args.accumulate_dx = (l + group) % 2 == 0;
              c.RunRef();
              RmsNormGrad(exec, c.args);
              CheckAgainstOracle(c, gate != Gate::kNone);
              ASSERT_FALSE(::testing::Test::HasFailure())
                  << static_cast<int>(gate) << " " << l << " " << groups << " " << group;
            }
          }
        }
      }
    }
  });
}

TEST(RmsNormGrad, GateWithoutNorm) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    for (const bool weight : {true, false}) {
      Case c(rng, 11, 2, 37, Gate::kBeforeNorm, weight);
      c.args.normalize = false;
      c.RunRef();
      RmsNormGrad(exec, c.args);
      CheckAgainstOracle(c, true);
    }
  });
}

TEST(RmsNormGrad, YHasTheBitsOfTheForwardPass) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(3);
    for (const Gate gate : {Gate::kNone, Gate::kBeforeNorm, Gate::kAfterNorm}) {
      Case c(rng, 9, 2, 37, gate, true);
      RmsNormGrad(exec, c.args);
      std::vector<float> y(c.got.y.size());
      RmsNorm(exec, {.x = c.args.x,
                     .z = c.args.z,
                     .w = c.args.w,
                     .y = {y.data(), 9, 74, 74},
                     .group = 37,
                     .gate = gate});
      ASSERT_TRUE(SameBits(c.got.y, y));
    }
  });
}

// 700 rows: tasks of more than one size of slot.
TEST(RmsNormGrad, AnyThreadCountHasTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(4);
    const Case start(rng, 700, 2, 19, Gate::kBeforeNorm, true);
    Outputs first;
    for (const size_t threads : {1, 2, 3}) {
      core::ThreadPool pool(threads);
      core::Exec exec{pool};
      Outputs out = start.want;
      std::vector<float> scratch(start.scratch.size());
      RmsNormGradArgs a = start.args;
      Case::Point(a, out);
      a.scratch.data = scratch.data();
      RmsNormGrad(exec, a);
      if (threads == 1) {
        first = out;
        continue;
      }
      ASSERT_TRUE(SameBits(out.dx, first.dx));
      ASSERT_TRUE(SameBits(out.dz, first.dz));
      ASSERT_TRUE(SameBits(out.dw, first.dw));
    }
  });
}

TEST(RmsNormGrad, OutputsMayBeInputsAndMayBeLeftOut) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(5);
    for (const Gate gate : {Gate::kBeforeNorm, Gate::kAfterNorm}) {
      Case c(rng, 9, 2, 19, gate, true);
      RmsNormGrad(exec, c.args);
      RmsNormGradArgs a = c.args;
      a.dx = {c.dy.data(), 9, 38, 43};
      a.dz = {c.z.data(), 9, 38, 39};
      a.y = {c.x.data(), 9, 38, 41};
      a.dw = {};
      a.scratch = {};
      RmsNormGrad(exec, a);
      ASSERT_TRUE(SameBits(Flatten(a.dx), Flatten(c.args.dx)));
      ASSERT_TRUE(SameBits(Flatten(a.dz), Flatten(c.args.dz)));
      ASSERT_TRUE(SameBits(Flatten(a.y), Flatten(c.args.y)));
    }
  });
}

TEST(RmsNormGrad, ExtremeGatesStayFinite) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    std::vector<float> x(9, 1.0f), dy(9, 1.0f), dx(9), dz(9);
    std::vector<float> z = {-1e30f, -200.0f, -88.9f, -88.0f, -20.0f, 0.0f, 20.0f, 200.0f, 1e30f};
    RmsNormGrad(exec, {.x = {x.data(), 1, 9, 9},
                       .z = {z.data(), 1, 9, 9},
                       .dy = {dy.data(), 1, 9, 9},
                       .dx = {dx.data(), 1, 9, 9},
                       .dz = {dz.data(), 1, 9, 9},
                       .group = 9,
                       .gate = Gate::kBeforeNorm,
                       .normalize = false});
    for (size_t i = 0; i < 9; ++i) {
      const double v = z[i], s = 1.0 / (1.0 + std::exp(-v));
      const double slope = s * (1.0 + v / (1.0 + std::exp(v)));
      EXPECT_NEAR(dx[i], v * s, 4 * kEpsF32 * std::abs(v * s) + 1e-35) << v;
      EXPECT_NEAR(dz[i], slope, 16 * kEpsF32 * std::abs(slope) + 1e-35) << v;
    }
  });
}

// sum of dy y, in double from start to end.
double Objective(const RmsNormGradArgs& a, const std::vector<double>& x,
                 const std::vector<double>& z, const std::vector<double>& w) {
  const size_t n = a.x.cols;
  double total = 0.0;
  for (size_t l = 0; l < a.x.rows; ++l) {
    for (size_t begin = 0; begin < n; begin += a.group) {
      const auto v = [&](size_t i) {
        return x[l * n + i] * (a.gate == Gate::kBeforeNorm ? Silu(z[l * n + i]) : 1.0);
      };
      double squares = 0.0;
      for (size_t i = begin; i < begin + a.group; ++i) squares += v(i) * v(i);
      const double root = a.normalize ? std::sqrt(squares / a.group + a.eps) : 1.0;
      for (size_t i = begin; i < begin + a.group; ++i) {
        const double y =
            w[i] * v(i) / root * (a.gate == Gate::kAfterNorm ? Silu(z[l * n + i]) : 1.0);
        total += a.dy.Row(l)[i] * y;
      }
    }
  }
  return total;
}

// Central differences with h = 2^-12: h^2 / 6 of a third derivative of order 1 to 10 is 1e-7 of
// the scale; the oracle's rounding to f32 is 6e-8.
void CheckDifferences(const std::vector<double>& at, std::span<const float> got,
                      const std::function<double(const std::vector<double>&)>& objective) {
  std::vector<float> want;
  for (size_t i = 0; i < at.size(); ++i) {
    constexpr double kStep = 0x1p-12;
    std::vector<double> up = at, down = at;
    up[i] += kStep;
    down[i] -= kStep;
    want.push_back(static_cast<float>((objective(up) - objective(down)) / (2.0 * kStep)));
  }
  EXPECT_TRUE(testing::CloseToScale(got, want, 2e-7));
}

TEST(RmsNormGradRef, EqualsFiniteDifferences) {
  core::Rng rng(6);
  for (const Gate gate : {Gate::kNone, Gate::kBeforeNorm, Gate::kAfterNorm}) {
    for (const bool normalize : {true, false}) {
      if (!normalize && gate != Gate::kBeforeNorm) continue;
      SCOPED_TRACE(static_cast<int>(gate));
      Case c(rng, 3, 2, 7, gate, true);
      c.args.normalize = normalize;
      std::fill(c.want.dw.begin(), c.want.dw.end(), 0.0f);
      c.RunRef();
      const auto widen = [](const std::vector<float>& v) {
        return std::vector<double>(v.begin(), v.end());
      };
      const auto x = widen(Flatten(c.args.x)), z = widen(Flatten(c.args.z)), w = widen(c.w);
      RmsNormGradArgs a = c.args;
      Case::Point(a, c.want);
      CheckDifferences(x, Flatten(a.dx), [&](const auto& v) { return Objective(a, v, z, w); });
      CheckDifferences(w, c.want.dw, [&](const auto& v) { return Objective(a, x, z, v); });
      if (gate == Gate::kNone) continue;
      CheckDifferences(z, Flatten(a.dz), [&](const auto& v) { return Objective(a, x, v, w); });
    }
  }
}

}  // namespace
}  // namespace hognose::kernels
