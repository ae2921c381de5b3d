#include "kernels/scan/scan.h"

#include <cmath>
#include <limits>

#include "core/fp_env.h"
#include "kernels/scan/scan_testing.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  ScanSize size;
  TestSeries a, x, y, want;
  std::vector<float> initial, last, last_want, scratch;
  ScanArgs args;

  Case(ScanOp op, ScanSize s, const std::function<float()>& next_a,
       const std::function<float()>& next_x)
      : size(s), a(s, next_a), x(s, next_x), y(s), want(s) {
    for (size_t i = 0; i < s.b * s.c; ++i) initial.push_back(next_x());
    last.assign(s.b * s.c, 7.0f);
    last_want = last;
    args.op = op;
    if (op == ScanOp::kLinear) args.a = a.View();
    args.x = x.View();
    args.initial = {initial.data(), s.b, s.c, s.c};
    args.y = y.View();
    args.last = {last.data(), s.b, s.c, s.c};
  }
  Case(const Case&) = delete;

  void Ref() {
    ScanArgs ref = args;
    ref.y = want.View();
    ref.last.data = last_want.data();
    ScanRef(ref);
  }
  void Run(size_t threads, ScanMethod method) {
    static core::ThreadPool pools[] = {core::ThreadPool(1), core::ThreadPool(2),
                                       core::ThreadPool(3)};
    core::Exec exec{pools[threads - 1]};
    args.method = method;
    scratch.assign(ScanScratch({args.op, size.b, size.l, size.c}, method), kNan);
    args.scratch = {scratch.data(), scratch.size()};
    y = TestSeries(size);
    args.y = y.View();
    Scan(exec, args);
  }
  std::string Name(ScanMethod method) const {
    return ToString(size) + " op " + std::to_string(static_cast<int>(args.op)) + " method " +
           std::to_string(static_cast<int>(method)) + (args.exclusive ? " exclusive" : "") +
           (args.reverse ? " reverse" : "");
  }
};

// Values with which no operator ever rounds, whatever the order: whole numbers and signs for the
// recurrence and the sum; for the product any run of factors is between 2^-2 and 2^2.
struct ExactValues {
  core::Rng rng{1};
  float pending = 0.0f;

  float Coefficient() { return static_cast<float>(rng.Below(3)) - 1.0f; }
  float Value(ScanOp op) {
    if (op != ScanOp::kProduct) return static_cast<float>(rng.Below(9)) - 4.0f;
    return rng.Below(2) == 0 ? 1.0f : -1.0f;
  }
};

void ExpectExact(ScanSize size) {
  for (const ScanOp op : kScanOps) {
    ExactValues values;
    for (const int flags : {0, 1, 2, 3, 4}) {
      Case c(
          op, size, [&] { return values.Coefficient(); }, [&] { return values.Value(op); });
      c.args.exclusive = flags % 2 != 0;
      c.args.reverse = flags / 2 == 1;
      if (flags == 4) c.args.initial = {};
      c.Ref();
      for (const ScanMethod method : kScanMethods) {
        SCOPED_TRACE(c.Name(method));
        c.Run(2, method);
        ASSERT_TRUE(SameBits(c.y.values, c.want.values));  // with what lies in the gaps
        ASSERT_TRUE(SameBits(c.last, c.last_want));
      }
    }
  }
}

TEST(Scan, IsExactWhereNothingRounds) {
  ForEachTarget([&] {
    for (const size_t c : {1, 2, 3, 4, 8, 17, 33, 64, 100}) {
      for (const size_t l : {1, 2, 3, 31, 33, 1000}) {
        ExpectExact({.b = 2, .l = l, .c = c, .gap = l % 3 == 0 ? 1u : 0u});
        ASSERT_FALSE(::testing::Test::HasFailure());
      }
    }
    ExpectExact({.b = 1, .l = 65537, .c = 1});
    ExpectExact({.b = 3, .l = 5000, .c = 2});
    ExpectExact({.b = 300, .l = 9, .c = 1});
  });
}

// Powers of two of either sign, with zeros: exact, and a product that is not just a sign.
TEST(Scan, ProductOfPowersOfTwoIsExact) {
  ForEachTarget([&] {
    core::Rng rng(2);
    bool odd = false;
    float factor = 1.0f;
    const auto next = [&] {  // neighbours' product is +-1
      odd = !odd;
      if (odd) factor = std::ldexp(1.0f, static_cast<int>(rng.Below(3)) - 1);
      if (rng.Below(500) == 0) return 0.0f;
      return (odd ? factor : 1.0f / factor) * (rng.Below(2) == 0 ? 1.0f : -1.0f);
    };
    Case c(ScanOp::kProduct, {.b = 1, .l = 20000, .c = 1}, next, next);
    c.Ref();
    for (const ScanMethod method : kScanMethods) {
      SCOPED_TRACE(c.Name(method));
      c.Run(2, method);
      ASSERT_TRUE(SameBits(c.y.values, c.want.values));
    }
  });
}

// Passes when every |got - want| <= bound of the same element.
::testing::AssertionResult WithinEach(std::span<const float> got, std::span<const float> want,
                                      const std::vector<double>& bound) {
  if (want.empty()) return ::testing::AssertionFailure() << "nothing to compare";
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::abs(static_cast<double>(got[i]) - want[i]) <= bound[i]) continue;
    return ::testing::AssertionFailure()
           << "at " << i << ": got " << got[i] << ", want " << want[i] << ", allowed " << bound[i];
  }
  return ::testing::AssertionSuccess();
}

// Additions between a term and a result, at most: all of the steps, or the tree's way up and down
// and the state at its root.
double Depth(ScanMethod method, size_t steps) {
  const double l = static_cast<double>(steps);
  return method == ScanMethod::kBlelloch ? 2.0 * std::ceil(std::log2(l)) + 2.0 : l + 1.0;
}

// Each rounding is eps / 2 of a sum that the magnitudes of the terms bound; a term of a linear
// recurrence that is s steps old has been multiplied s times at most and added to later terms s
// times at most, and to earlier ones as often as there are levels: in a register 4 and in a block
// of registers 4, in the tree log2 L, and with the state before each of them. With w = sum of (s +
// 1) |term| and m = sum of |term| that is eps (w + levels / 2 m). Both follow the recurrence
// themselves. The oracle rounds once more, to f32.
std::vector<double> BoundsOf(const Case& c, ScanMethod method) {
  const bool linear = c.args.op == ScanOp::kLinear;
  const double levels = std::max(8.0, std::log2(static_cast<double>(c.size.l))) + 4.0;
  std::vector<double> bounds;
  double m = std::abs(c.initial[0]), w = m;
  for (size_t t = 0; t < c.size.l; ++t) {
    const double a = linear ? std::abs(c.a.values[t]) : 1.0, x = std::abs(c.x.values[t]);
    w = a * (w + m) + x;
    m = a * m + x;
    const double roundings = linear ? w + levels / 2.0 * m : Depth(method, t + 2) / 2.0 * m;
    bounds.push_back(kEpsF32 * (roundings + m / 2.0));
  }
  bounds.resize(c.x.values.size(), 0.0);  // the gap at the end
  return bounds;
}

// One dense channel, forwards: the other layouts and directions do the same arithmetic, which the
// exact values show.
TEST(Scan, IsAccurateAtAnyLength) {
  const core::FlushDenormals flush;
  ForEachTarget([&] {
    for (const size_t l : {1, 2, 3, 31, 33, 1000, 65537}) {
      for (const ScanOp op : {ScanOp::kLinear, ScanOp::kSum}) {
        core::Rng rng(l);
        Case c(
            op, {.b = 1, .l = l, .c = 1},
            [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); },
            [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); });
        c.Ref();
        for (const ScanMethod method : kScanMethods) {
          SCOPED_TRACE(c.Name(method));
          c.Run(2, method);
          ASSERT_TRUE(WithinEach(c.y.values, c.want.values, BoundsOf(c, method)));
        }
      }
    }
  });
}

// Coefficients near 1, so that terms live for thousands of steps.
TEST(Scan, SlowDecayIsAccurate) {
  ForEachTarget([&] {
    core::Rng rng(3);
    Case c(
        ScanOp::kLinear, {.b = 1, .l = 65537, .c = 1},
        [&] { return static_cast<float>(rng.Uniform(0.999, 1.0)); },
        [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); });
    c.Ref();
    for (const ScanMethod method : kScanMethods) {
      SCOPED_TRACE(c.Name(method));
      c.Run(2, method);
      ASSERT_TRUE(WithinEach(c.y.values, c.want.values, BoundsOf(c, method)));
    }
  });
}

// A product of L factors has L roundings in any order, each eps / 2 of it.
TEST(Scan, ProductIsAccurate) {
  ForEachTarget([&] {
    core::Rng rng(4);
    const size_t l = 1000;
    const auto next = [&] { return static_cast<float>(rng.Uniform(0.95, 1.05)); };
    Case c(ScanOp::kProduct, {.b = 1, .l = l, .c = 1}, next, next);
    c.Ref();
    std::vector<double> bounds(c.want.values.size(), 0.0);
    for (size_t t = 0; t < l; ++t) {
      bounds[t] = (static_cast<double>(t) + 2.0) / 2.0 * kEpsF32 * std::abs(c.want.values[t]);
    }
    for (const ScanMethod method : kScanMethods) {
      SCOPED_TRACE(c.Name(method));
      c.Run(2, method);
      ASSERT_TRUE(WithinEach(c.y.values, c.want.values, bounds));
    }
  });
}

TEST(Scan, AnyThreadCountHasTheSameBits) {
  const core::FlushDenormals flush;
  const ScanSize sizes[] = {{2, 70000, 1}, {1, 3000, 5}, {1, 400, 300}, {40, 100, 1}};
  ForEachTarget([&] {
    for (const ScanSize size : sizes) {
      for (const ScanOp op : kScanOps) {
        core::Rng rng(5);
        const auto next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
        Case c(op, size, next, next);
        for (const ScanMethod method : kScanMethods) {
          SCOPED_TRACE(c.Name(method));
          c.Run(1, method);
          const std::vector<float> y = c.y.values, last = c.last;
          for (const size_t threads : {2, 3}) {
            c.Run(threads, method);
            ASSERT_TRUE(SameBits(c.y.values, y));
            ASSERT_TRUE(SameBits(c.last, last));
          }
        }
      }
    }
  });
}

TEST(Scan, TheResultMayTakeAnOperandsPlace) {
  const core::FlushDenormals flush;
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  const ScanSize sizes[] = {{2, 5000, 1}, {1, 500, 70}, {2, 301, 3, 1}};
  ForEachTarget([&] {
    for (const ScanSize size : sizes) {
      for (const int flags : {0, 1, 2, 3}) {
        core::Rng rng(6);
        const auto next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
        Case c(ScanOp::kLinear, size, next, next);
        c.args.exclusive = flags % 2 != 0;
        c.args.reverse = flags / 2 != 0;
        for (const ScanMethod method : kScanMethods) {
          SCOPED_TRACE(c.Name(method));
          c.Run(2, method);
          std::vector<float> state = c.initial;
          for (const bool over_a : {false, true}) {
            TestSeries out = over_a ? c.a : c.x;
            ScanArgs args = c.args;
            (over_a ? args.a : args.x) = out.View();
            args.y = out.View();
            state = c.initial;
            args.initial.data = args.last.data = state.data();
            Scan(exec, args);
            const TestSeries& gaps = over_a ? c.a : c.x;
            TestSeries want = gaps;
            for (size_t b = 0; b < size.b; ++b) {
              for (size_t t = 0; t < size.l; ++t) {
                std::copy_n(c.args.y.At(b, t), size.c, want.View().At(b, t));
              }
            }
            ASSERT_TRUE(SameBits(out.values, want.values)) << over_a;
            ASSERT_TRUE(SameBits(state, c.last)) << over_a;
          }
        }
      }
    }
  });
}

// Both NaN, or equal.
::testing::AssertionResult SameOrNan(std::span<const float> got, std::span<const float> want) {
  if (want.empty()) return ::testing::AssertionFailure() << "nothing to compare";
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]) continue;
    return ::testing::AssertionFailure()
           << "at " << i << ": got " << got[i] << ", want " << want[i];
  }
  return ::testing::AssertionSuccess();
}

// From a NaN on all is NaN, and nothing before it; infinities as IEEE has them.
TEST(Scan, NanAndInfinitiesPropagate) {
  const ScanSize sizes[] = {{1, 700, 1}, {1, 700, 3}, {1, 700, 17}, {1, 700, 64}};
  ForEachTarget([&] {
    for (const ScanSize size : sizes) {
      for (const ScanOp op : kScanOps) {
        for (const bool reverse : {false, true}) {
          ExactValues values;
          Case c(
              op, size, [] { return 1.0f; }, [&] { return values.Value(op); });
          c.args.reverse = reverse;
          // Channel 0: a NaN between infinities; the last channel: both infinities.
          c.x.values[100 * size.c] = kInf;
          c.x.values[350 * size.c] = kNan;
          c.x.values[600 * size.c] = kInf;
          c.x.values[200 * size.c + size.c - 1] = -kInf;
          c.x.values[500 * size.c + size.c - 1] = kInf;
          c.Ref();
          for (const ScanMethod method : kScanMethods) {
            SCOPED_TRACE(c.Name(method));
            c.Run(2, method);
            ASSERT_TRUE(SameOrNan(c.y.values, c.want.values));
            ASSERT_TRUE(SameOrNan(c.last, c.last_want));
          }
        }
      }
    }
  });
}

TEST(Scan, WithoutStepsTheStateStays) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  for (const ScanOp op : kScanOps) {
    for (const ScanMethod method : kScanMethods) {
      std::vector<float> initial = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, last(6, 7.0f);
      ScanArgs args = {.op = op, .method = method};
      args.x = {nullptr, 2, 0, 3, 0, 3};
      args.a = args.x;
      args.y = {nullptr, 2, 0, 3, 0, 3};
      args.last = {last.data(), 2, 3, 3};
      Scan(exec, args);
      const float identity = op == ScanOp::kProduct ? 1.0f : op == ScanOp::kMax ? -kInf : 0.0f;
      EXPECT_EQ(last, std::vector<float>(6, identity));
      args.initial = {initial.data(), 2, 3, 3};
      Scan(exec, args);
      EXPECT_EQ(last, initial);
      // Nor is anything done for no sequences or no channels.
      args.initial = {};
      args.last = {};
      args.x = {nullptr, 0, 5, 3, 0, 3};
      args.a = args.x;
      args.y = {nullptr, 0, 5, 3, 0, 3};
      Scan(exec, args);
      args.x = {nullptr, 2, 5, 0, 0, 0};
      args.a = args.x;
      args.y = {nullptr, 2, 5, 0, 0, 0};
      Scan(exec, args);
    }
  }
}

TEST(Scan, AutoIsTheMethodOfPickScan) {
  core::Rng rng(7);
  const auto next = [&] { return static_cast<float>(rng.Uniform(-1.0, 1.0)); };
  for (const ScanSize size : {ScanSize{1, 100, 64}, ScanSize{1, 200000, 1}}) {
    Case c(ScanOp::kLinear, size, next, next);
    c.Run(2, PickScan({ScanOp::kLinear, size.b, size.l, size.c}));
    const std::vector<float> y = c.y.values;
    c.Run(2, ScanMethod::kAuto);
    EXPECT_TRUE(SameBits(c.y.values, y));
  }
}

TEST(ScanRef, FollowsTheDefinition) {
  const std::vector<float> a = {2.0f, 3.0f, -1.0f}, x = {1.0f, -4.0f, 5.0f};
  const std::vector<float> initial = {2.0f};
  const auto run = [&](ScanOp op, bool exclusive, bool reverse) {
    std::vector<float> y(3), last(1);
    ScanRef({.op = op,
             .exclusive = exclusive,
             .reverse = reverse,
             .a = Series<const float>::Dense(a.data(), 1, 3, 1),
             .x = Series<const float>::Dense(x.data(), 1, 3, 1),
             .initial = {initial.data(), 1, 1, 1},
             .y = Series<float>::Dense(y.data(), 1, 3, 1),
             .last = {last.data(), 1, 1, 1}});
    y.push_back(last[0]);
    return y;
  };
  using F = std::vector<float>;
  EXPECT_EQ(run(ScanOp::kLinear, false, false), F({5, 11, -6, -6}));
  EXPECT_EQ(run(ScanOp::kLinear, true, false), F({2, 5, 11, -6}));
  EXPECT_EQ(run(ScanOp::kLinear, false, true), F({11, 5, 3, 11}));
  EXPECT_EQ(run(ScanOp::kLinear, true, true), F({5, 3, 2, 11}));
  EXPECT_EQ(run(ScanOp::kSum, false, false), F({3, -1, 4, 4}));
  EXPECT_EQ(run(ScanOp::kProduct, false, false), F({2, -8, -40, -40}));
  EXPECT_EQ(run(ScanOp::kMax, false, false), F({2, 2, 5, 5}));
  EXPECT_EQ(run(ScanOp::kMax, true, true), F({5, 5, 2, 5}));
}

}  // namespace
}  // namespace hognose::kernels
