#include <functional>

#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::Flatten;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;
using testing::Within;

struct Outputs {
  std::vector<float> dx, dw, dbias, dwindow;
};

struct Case {
  std::vector<float> x, w, bias, window, dy, scratch;
  Outputs got, want;
  CausalConv1dGradArgs args;

  Case(core::Rng& rng, size_t l, size_t c, size_t k, bool with_bias)
      : x(RandomValues(rng, l * (c + 3), -1.0, 1.0)),
        w(RandomValues(rng, k * (c + 1), -1.0, 1.0)),
        bias(RandomValues(rng, c, -1.0, 1.0)),
        window(RandomValues(rng, k * (c + 2), -1.0, 1.0)),
        dy(RandomValues(rng, l * (c + 4), -1.0, 1.0)),
        scratch(CausalConv1dGradScratch(k, c), 7.0f) {
    args.x = {x.data(), l, c, c + 3};
    args.w = {w.data(), k, c, c + 1};
    if (with_bias) args.bias = {bias.data(), c};
    args.window = {window.data(), k, c, c + 2};
    args.dy = {dy.data(), l, c, c + 4};
    args.scratch = {scratch.data(), scratch.size()};
    // All but dx have values on entry that count.
    got = {std::vector<float>(l * (c + 1), 7.0f), RandomValues(rng, k * (c + 2), -1.0, 1.0),
           RandomValues(rng, c, -1.0, 1.0), RandomValues(rng, k * (c + 3), -1.0, 1.0)};
    want = got;
    Point(args, got);
  }
  static void Point(CausalConv1dGradArgs& a, Outputs& o) {
    const size_t l = a.x.rows, c = a.x.cols, k = a.w.rows;
    a.dx = {o.dx.data(), l, c, c + 1};
    a.dw = {o.dw.data(), k, c, c + 2};
    a.dbias = {o.dbias.data(), c};
    a.dwindow = {o.dwindow.data(), k, c, c + 3};
  }
  void RunRef() {
    CausalConv1dGradArgs a = args;
    Point(a, want);
    CausalConv1dGradRef(a);
  }
};

// All operands lie in [-1, 1]. p is a sum of K products and a bias: |error| <= (K + 1)^2 / 2 eps.
// silu' has a slope of at most 1/2 and a value of at most 1.1, computed to 12 eps: that is the
// error of dp, of magnitude 1.1. dx adds K terms w dp and one of dwindow; dw adds L terms dp x, and
// then what was there.
void CheckAgainstOracle(const Case& c) {
  const double k = static_cast<double>(c.args.w.rows), l = static_cast<double>(c.args.x.rows);
  const double dp = (k + 1.0) * (k + 1.0) / 4.0 + 14.0;
  const double taps = k * dp + (k + 1.0) * (1.1 * k + 1.0);
  const double sums = l * dp + (l + 1.0) * (1.1 * l + 1.0);
  ASSERT_TRUE(Within(c.got.dx, c.want.dx, taps * kEpsF32));
  ASSERT_TRUE(Within(c.got.dwindow, c.want.dwindow, taps * kEpsF32));
  ASSERT_TRUE(Within(c.got.dw, c.want.dw, sums * kEpsF32));
  ASSERT_TRUE(Within(c.got.dbias, c.want.dbias, sums * kEpsF32));
}

// Lengths around the width: shorter than the window, equal, longer.
TEST(CausalConv1dGrad, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t l : {1, 2, 3, 4, 5, 11, 40}) {
      for (const size_t c : {1, 15, 17, 33, 300}) {
        for (const size_t k : {1, 2, 3, 4, 5, 8}) {
          Case v(rng, l, c, k, l % 2 == 0);
          v.RunRef();
          CausalConv1dGrad(exec, v.args);
          CheckAgainstOracle(v);
          ASSERT_FALSE(::testing::Test::HasFailure()) << l << " " << c << " " << k;
        }
      }
    }
  });
}

TEST(CausalConv1dGrad, OutputsMayBeLeftOutAndDxMayBeDy) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    Case c(rng, 9, 37, 4, true);
    // No gradient of the window is one of zero on entry.
    std::fill(c.got.dwindow.begin(), c.got.dwindow.end(), 0.0f);
    CausalConv1dGrad(exec, c.args);
    CausalConv1dGradArgs a = c.args;
    a.dx = {c.dy.data(), 9, 37, 41};
    a.dw = {};
    a.dbias = {};
    a.dwindow = {};
    CausalConv1dGrad(exec, a);
    ASSERT_TRUE(SameBits(Flatten(a.dx), Flatten(c.args.dx)));
  });
}

TEST(CausalConv1dGrad, AnyThreadCountHasTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(3);
    const Case start(rng, 20, 700, 4, true);
    Outputs first;
    for (const size_t threads : {1, 3}) {
      core::ThreadPool pool(threads);
      core::Exec exec{pool};
      Outputs out = start.want;
      std::vector<float> scratch(start.scratch.size());
      CausalConv1dGradArgs a = start.args;
      Case::Point(a, out);
      a.scratch.data = scratch.data();
      CausalConv1dGrad(exec, a);
      if (threads == 1) {
        first = out;
        continue;
      }
      ASSERT_TRUE(SameBits(out.dx, first.dx));
      ASSERT_TRUE(SameBits(out.dw, first.dw));
      ASSERT_TRUE(SameBits(out.dbias, first.dbias));
      ASSERT_TRUE(SameBits(out.dwindow, first.dwindow));
    }
  });
}

// Two pieces, the later first: the gradient of the window between them carries what the later one
// owes to the earlier one. dw and dbias are sums of sums, equal but for rounding.
TEST(CausalConv1dGrad, SplitsOfTimeHaveTheSameBits) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(4);
    const size_t l = 9, c = 19, k = 4;
    for (size_t first = 1; first < l; ++first) {
      Case v(rng, l, c, k, true);
      v.RunRef();
      Outputs whole = v.got;
      CausalConv1dGradArgs at_once = v.args;
      Case::Point(at_once, whole);
      CausalConv1dGrad(exec, at_once);
      std::vector<float> middle(k * c), y(l * c);
      const core::Mat<float> between = {middle.data(), k, c, c};
      for (size_t i = 0; i < k; ++i) std::copy_n(v.args.window.Row(i), c, between.Row(i));
      CausalConv1d(exec, {.x = v.args.x.Rows(0, first),
                          .w = v.args.w,
                          .bias = v.args.bias,
                          .window = between,
                          .y = {y.data(), first, c, c}});
      CausalConv1dGradArgs a = v.args;
      const auto piece = [&](size_t begin, size_t count, core::Mat<const float> window) {
        a.x = v.args.x.Rows(begin, count);
        a.dy = v.args.dy.Rows(begin, count);
        a.dx = v.args.dx.Rows(begin, count);
        a.window = window;
        CausalConv1dGrad(exec, a);
      };
      piece(first, l - first, between);
      piece(0, first, v.args.window);
      CheckAgainstOracle(v);
      ASSERT_TRUE(SameBits(v.got.dx, whole.dx)) << first;
      ASSERT_TRUE(SameBits(v.got.dwindow, whole.dwindow)) << first;
    }
  });
}

// sum of dy y and of dafter times the window after the pass, in double from start to end; `in` is
// the window before the pass and x.
double Objective(const CausalConv1dGradArgs& a, const core::Mat<const float>& dafter,
                 const std::vector<double>& in, const std::vector<double>& w,
                 const std::vector<double>& bias) {
  const size_t c = a.x.cols, taps = a.w.rows, length = a.x.rows;
  double total = 0.0;
  for (size_t i = 0; i < c; ++i) {
    for (size_t t = 0; t < length; ++t) {
      double p = bias[i];
      for (size_t k = 0; k < taps; ++k) p += w[k * c + i] * in[(t + 1 + k) * c + i];
      total += a.dy.Row(t)[i] * p / (1.0 + std::exp(-p));
    }
    for (size_t k = 0; k < taps; ++k) total += dafter.Row(k)[i] * in[(length + k) * c + i];
  }
  return total;
}

// Central differences with h = 2^-12: h^2 / 6 of a third derivative below 1, times K inputs, is
// 4e-8 of the scale; the oracle's rounding to f32 is 6e-8.
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

TEST(CausalConv1dGradRef, EqualsFiniteDifferences) {
  core::Rng rng(5);
  for (const auto& [l, k] : {std::pair<size_t, size_t>{1, 4}, {3, 4}, {4, 4}, {7, 3}, {5, 1}}) {
    SCOPED_TRACE(l);
    const size_t c = 3;
    Case v(rng, l, c, k, true);
    const Outputs entry = v.want;
    std::fill(v.want.dw.begin(), v.want.dw.end(), 0.0f);
    std::fill(v.want.dbias.begin(), v.want.dbias.end(), 0.0f);
    v.RunRef();
    CausalConv1dGradArgs a = v.args;
    Case::Point(a, v.want);
    const core::Mat<const float> dafter = {entry.dwindow.data(), k, c, c + 3};
    const auto joined = [](std::vector<float> first, const std::vector<float>& second) {
      first.insert(first.end(), second.begin(), second.end());
      return first;
    };
    const auto widen = [](const std::vector<float>& f) {
      return std::vector<double>(f.begin(), f.end());
    };
    const auto in = widen(joined(Flatten(a.window), Flatten(a.x)));
    const auto w = widen(Flatten(a.w)), bias = widen(v.bias);
    CheckDifferences(in, joined(Flatten(a.dwindow), Flatten(a.dx)),
                     [&](const auto& u) { return Objective(a, dafter, u, w, bias); });
    CheckDifferences(w, Flatten(a.dw),
                     [&](const auto& u) { return Objective(a, dafter, in, u, bias); });
    CheckDifferences(bias, v.want.dbias,
                     [&](const auto& u) { return Objective(a, dafter, in, w, u); });
  }
}

}  // namespace
}  // namespace hognose::kernels
