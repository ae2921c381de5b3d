#include <cmath>
#include <limits>

#include "core/fp_env.h"
#include "kernels/scan/scan.h"
#include "kernels/scan/scan_testing.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::SameBits;

using Next = std::function<float()>;

struct Outputs {
  TestSeries da, dx;
  std::vector<float> dinitial;

  explicit Outputs(ScanSize s) : da(s), dx(s), dinitial(s.b * s.c, 7.0f) {}
  void Point(ScanGradArgs& args) {
    const ScanSize s = dx.size;
    if (args.op == ScanOp::kLinear) args.da = da.View();
    args.dx = dx.View();
    args.dinitial = {dinitial.data(), s.b, s.c, s.c};
  }
};

// Set bits of `flags`: exclusive, reverse, neither initial nor dlast.
struct Case {
  ScanSize size;
  TestSeries a, x, y, dy;
  std::vector<float> initial, dlast, scratch;
  Outputs got, want;
  ScanGradArgs args;

  Case(ScanOp op, ScanSize s, unsigned flags, const Next& next_a, const Next& next_x,
       const Next& next_dy)
      : size(s), a(s, next_a), x(s, next_x), y(s), dy(s, next_dy), got(s), want(s) {
    for (size_t i = 0; i < s.b * s.c; ++i) initial.push_back(next_x());
    for (size_t i = 0; i < s.b * s.c; ++i) dlast.push_back(next_dy());
    args.op = op;
    args.exclusive = (flags & 1) != 0;
    args.reverse = (flags & 2) != 0;
    if (op == ScanOp::kLinear) args.a = a.View();
    args.x = x.View();
    args.y = y.View();
    args.dy = dy.View();
    if ((flags & 4) == 0) {
      args.initial = {initial.data(), s.b, s.c, s.c};
      args.dlast = {dlast.data(), s.b, s.c, s.c};
    }
    Forward();
  }
  Case(const Case&) = delete;

  void Forward() {
    ScanRef({.op = args.op,
             .exclusive = args.exclusive,
             .reverse = args.reverse,
             .a = args.a,
             .x = args.x,
             .initial = args.initial,
             .y = y.View()});
  }
  void Ref() {
    ScanGradArgs ref = args;
    want.Point(ref);
    ScanGradRef(ref);
  }
  void Run(core::Exec& exec, ScanMethod method) {
    args.method = method;
    scratch.assign(ScanGradScratch({args.op, size.b, size.l, size.c}, method), 7.0f);
    args.scratch = {scratch.data(), scratch.size()};
    got = Outputs(size);
    got.Point(args);
    ScanGrad(exec, args);
  }
  std::string Name() const {
    return ToString(size) + " op " + std::to_string(static_cast<int>(args.op)) + " method " +
           std::to_string(static_cast<int>(args.method)) + (args.exclusive ? " exclusive" : "") +
           (args.reverse ? " reverse" : "") + (args.initial.rows == 0 ? " bare" : "");
  }
};

void ExpectSame(const Outputs& got, const Outputs& want) {
  ASSERT_TRUE(SameBits(got.dx.values, want.dx.values));
  ASSERT_TRUE(SameBits(got.da.values, want.da.values));
  ASSERT_TRUE(SameBits(got.dinitial, want.dinitial));
}

// Whole numbers, where nothing rounds: coefficients and factors -1, 0, 1, so with zeros in the
// products, and maxima with many ties.
void ExpectExact(core::Exec& exec, ScanSize size) {
  for (const ScanOp op : kScanOps) {
    for (unsigned flags = 0; flags < 8; ++flags) {
      core::Rng rng(flags);
      const Next sign = [&] { return static_cast<float>(rng.Below(3)) - 1.0f; };
      const Next whole = [&] { return static_cast<float>(rng.Below(9)) - 4.0f; };
      Case c(op, size, flags, sign, op == ScanOp::kProduct ? sign : whole, whole);
      if (op == ScanOp::kMax && size.l > 100) {  // the maximum is a NaN from here on
        c.x.values[size.l / 2 * (size.c + size.gap)] = std::numeric_limits<float>::quiet_NaN();
        c.Forward();
      }
      c.Ref();
      for (const ScanMethod method : kScanMethods) {
        c.Run(exec, method);
        SCOPED_TRACE(c.Name());
        ExpectSame(c.got, c.want);
        ASSERT_FALSE(::testing::Test::HasFailure());
      }
    }
  }
}

TEST(ScanGrad, IsExactWhereNothingRounds) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    for (const size_t c : {1, 2, 5, 16, 33}) {
      for (const size_t l : {1, 2, 3, 33, 500}) {
        ExpectExact(exec, {.b = 2, .l = l, .c = c, .gap = l % 3 == 0 ? 1u : 0u});
        ASSERT_FALSE(::testing::Test::HasFailure());
      }
    }
    ExpectExact(exec, {.b = 1, .l = 20000, .c = 1});
  });
}

// |error| of a linear recurrence as in scan_test.cc: eps (w + levels / 2 m), here for the states h
// (from f32 operands, rounded once) and for the gradients g backwards; of da = g h the sum of both
// relative to the other factor, and a rounding. |a| <= 1, |x|, |dy|, |initial|, |dlast| <= 1.
TEST(ScanGrad, RecurrenceIsAccurate) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  const core::FlushDenormals flush;
  const size_t l = 3000;
  const double levels = std::log2(l) + 4.0;
  ForEachTarget([&] {
    core::Rng rng(1);
    const Next next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
    Case c(ScanOp::kLinear, {.b = 1, .l = l, .c = 1}, 0, next, next, next);
    c.Ref();
    std::vector<double> mh = {std::abs(c.initial[0])}, mg(l), eg(l);  // h before each step
    for (size_t t = 0; t + 1 < l; ++t) {
      mh.push_back(std::abs(c.a.values[t]) * mh[t] + std::abs(c.x.values[t]));
    }
    double m = std::abs(c.dlast[0]), w = m;
    for (size_t t = l; t-- > 0;) {
      const double a = t + 1 < l ? std::abs(c.a.values[t + 1]) : 1.0;
      w = a * (w + m) + std::abs(c.dy.values[t]);
      m = a * m + std::abs(c.dy.values[t]);
      mg[t] = m;
      eg[t] = kEpsF32 * (w + levels / 2.0 * m + m / 2.0);
    }
    for (const ScanMethod method : kScanMethods) {
      c.Run(exec, method);
      SCOPED_TRACE(c.Name());
      for (size_t t = 0; t < l; ++t) {
        ASSERT_LE(std::abs(c.got.dx.values[t] - c.want.dx.values[t]), eg[t]) << t;
        // h is rounded once, da by its product and in the oracle.
        const double da = mh[t] * eg[t] + 1.5 * kEpsF32 * mg[t] * mh[t];
        ASSERT_LE(std::abs(c.got.da.values[t] - c.want.da.values[t]), da) << t;
      }
    }
  });
}

TEST(ScanGrad, AnyThreadCountHasTheSameBits) {
  const core::FlushDenormals flush;
  core::ThreadPool one(1), two(2), three(3);
  ForEachTarget([&] {
    for (const ScanSize size : {ScanSize{2, 40000, 1}, ScanSize{1, 300, 70}}) {
      for (const ScanOp op : kScanOps) {
        core::Rng rng(2);
        const Next next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
        Case c(op, size, 0, next, next, next);
        for (const ScanMethod method : kScanMethods) {
          core::Exec exec{one};
          c.Run(exec, method);
          SCOPED_TRACE(c.Name());
          const Outputs first = c.got;
          for (core::ThreadPool* pool : {&two, &three}) {
            core::Exec more{*pool};
            c.Run(more, method);
            ExpectSame(c.got, first);
          }
        }
      }
    }
  });
}

TEST(ScanGrad, ResultsMayTakeTheirOperandsPlace) {
  const core::FlushDenormals flush;
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    for (const ScanOp op : {ScanOp::kLinear, ScanOp::kSum, ScanOp::kProduct}) {
      core::Rng rng(3);
      const Next next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
      Case c(op, {.b = 2, .l = 5000, .c = 1}, 0, next, next, next);
      for (const ScanMethod method : kScanMethods) {
        c.Run(exec, method);
        SCOPED_TRACE(c.Name());
        Outputs over(c.size);
        over.da = c.a;
        over.dx = c.dy;
        over.dinitial = c.dlast;
        ScanGradArgs args = c.args;
        over.Point(args);
        if (op == ScanOp::kLinear) args.a = args.da;
        args.dy = args.dx;
        args.dlast = args.dinitial;
        ScanGrad(exec, args);
        const auto flat = [](TestSeries& s) {
          std::vector<float> values;
          for (size_t b = 0; b < s.size.b; ++b) {
            values.insert(values.end(), s.View().At(b, 0), s.View().At(b, 0) + s.size.l);
          }
          return values;
        };
        ASSERT_TRUE(SameBits(flat(over.dx), flat(c.got.dx)));
        if (op == ScanOp::kLinear) {
          ASSERT_TRUE(SameBits(flat(over.da), flat(c.got.da)));
        }
        ASSERT_TRUE(SameBits(over.dinitial, c.got.dinitial));
      }
    }
  });
}

TEST(ScanGrad, WithoutStepsTheGradientGoesThrough) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  for (const ScanOp op : kScanOps) {
    const std::vector<float> dlast = {1.0f, 2.0f};
    std::vector<float> dinitial = {7.0f, 7.0f};
    ScanGradArgs args = {.op = op, .dinitial = {dinitial.data(), 1, 2, 2}};
    args.dx = {nullptr, 1, 0, 2, 0, 2};
    args.a = args.x = args.y = args.dy = args.dx;
    ScanGrad(exec, args);
    EXPECT_EQ(dinitial, std::vector<float>(2, 0.0f));
    args.dlast = {dlast.data(), 1, 2, 2};
    ScanGrad(exec, args);
    EXPECT_EQ(dinitial, dlast);
  }
}

// sum of dy y and dlast last, in double from start to end, of one channel in time's order.
double Objective(const ScanGradArgs& args, const std::vector<double>& a,
                 const std::vector<double>& x, double initial) {
  const size_t steps = args.x.steps;
  double h = initial, total = 0.0;
  for (size_t i = 0; i < steps; ++i) {
    const size_t t = args.reverse ? steps - 1 - i : i;
    const double before = h;
    if (args.op == ScanOp::kLinear) h = a[t] * h + x[t];
    if (args.op == ScanOp::kSum) h += x[t];
    if (args.op == ScanOp::kProduct) h *= x[t];
    if (args.op == ScanOp::kMax) h = std::max(h, x[t]);
    total += args.dy.At(0, t)[0] * (args.exclusive ? before : h);
  }
  return total + args.dlast.Row(0)[0] * h;
}

// The objective is affine in each single value (kMax: near it, for values 1/8 apart), so that
// central differences have no error but rounding: 2^-53 of the sum over the step 2^-12, 5e-13. The
// oracle's own is that of f32.
TEST(ScanGradRef, EqualsFiniteDifferences) {
  for (const ScanOp op : kScanOps) {
    for (unsigned flags = 0; flags < 4; ++flags) {
      const size_t l = 9;
      core::Rng rng(flags + 1);
      const Next next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
      unsigned order = 1;  // powers of 3 modulo 17: 16 different values
      const Next apart = [&] {
        order = order * 3 % 17;
        return static_cast<float>(order) / 8.0f;
      };
      Case c(op, {.b = 1, .l = l, .c = 1}, flags, next, op == ScanOp::kMax ? apart : next, next);
      if (op == ScanOp::kProduct) c.x.values[4] = 0.0f;
      c.Ref();
      SCOPED_TRACE(c.Name());
      const std::vector<double> a(c.a.values.begin(), c.a.values.end());
      const std::vector<double> x(c.x.values.begin(), c.x.values.end());
      const auto differences = [&](size_t size, const auto& objective) {
        constexpr double kStep = 0x1p-12;
        std::vector<float> d;
        for (size_t i = 0; i < size; ++i) {
          const double difference = objective(i, kStep) - objective(i, -kStep);
          d.push_back(static_cast<float>(difference / (2.0 * kStep)));
        }
        return d;
      };
      const auto moved = [](std::vector<double> v, size_t i, double by) {
        v[i] += by;
        return v;
      };
      const double initial = c.initial[0];
      const auto dx = differences(
          l, [&](size_t i, double by) { return Objective(c.args, a, moved(x, i, by), initial); });
      const auto dinitial =
          differences(1, [&](size_t, double by) { return Objective(c.args, a, x, initial + by); });
      EXPECT_TRUE(CloseToScale(std::span(c.want.dx.values).first(l), dx, kEpsF32));
      EXPECT_NEAR(c.want.dinitial[0], dinitial[0], 4.0 * kEpsF32);
      if (op != ScanOp::kLinear) continue;
      const auto da = differences(
          l, [&](size_t i, double by) { return Objective(c.args, moved(a, i, by), x, initial); });
      EXPECT_TRUE(CloseToScale(std::span(c.want.da.values).first(l), da, kEpsF32));
    }
  }
}

}  // namespace
}  // namespace hognose::kernels
