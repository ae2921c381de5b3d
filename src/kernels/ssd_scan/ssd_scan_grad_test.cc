#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "kernels/ssd_scan/ssd_scan.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

struct Shape {
  size_t l, h, p, g, n;
};

// The gradients of one call, by name.
struct Gradients {
  std::vector<float> dx, db, dc, ddt, ddt_bias, da, dd_skip, dstate;

  std::array<std::pair<const char*, std::vector<float>*>, 8> all() {
    return {{{"dx", &dx},
             {"db", &db},
             {"dc", &dc},
             {"ddt", &ddt},
             {"ddt_bias", &ddt_bias},
             {"da", &da},
             {"dd_skip", &dd_skip},
             {"dstate", &dstate}}};
  }
};

struct Case {
  Shape s;
  std::vector<float> x, b, c, dt, dt_bias, a, d_skip, state, dy, dstate;
  float dt_min = 0.0f, dt_max = std::numeric_limits<float>::infinity();

  Case(core::Rng& rng, const Shape& shape)
      : s(shape),
        x(RandomValues(rng, s.l * (s.h * s.p + 2), -1.0, 1.0)),
        b(RandomValues(rng, s.l * (s.g * s.n + 1), -1.0, 1.0)),
        c(RandomValues(rng, s.l * (s.g * s.n + 3), -1.0, 1.0)),
        dt(RandomValues(rng, s.l * (s.h + 1), -4.0, 1.0)),
        dt_bias(RandomValues(rng, s.h, -3.0, 1.0)),
        a(RandomValues(rng, s.h, -4.0, -0.05)),
        d_skip(RandomValues(rng, s.h * s.p, -1.0, 1.0)),
        state(RandomValues(rng, s.h * s.n * s.p, -1.0, 1.0)),
        dy(RandomValues(rng, s.l * (s.h * s.p + 1), -1.0, 1.0)),
        dstate(RandomValues(rng, s.h * s.n * s.p, -1.0, 1.0)) {
    dt[0] = 40.0f;  // above softplus' linear limit
  }

  // Steps [begin, begin + count), from the state and the final state's gradient given.
  SsdScanGradArgs Args(Gradients& out, size_t begin, size_t count, std::vector<float>& scratch) {
    const size_t width = s.h * s.p, bc = s.g * s.n;
    scratch.resize(SsdScanGradScratch(count, s.h, s.p, s.g, s.n));
    SsdScanGradArgs v;
    v.x = core::Mat<const float>{x.data(), s.l, width, width + 2}.Rows(begin, count);
    v.b = core::Mat<const float>{b.data(), s.l, bc, bc + 1}.Rows(begin, count);
    v.c = core::Mat<const float>{c.data(), s.l, bc, bc + 3}.Rows(begin, count);
    v.dt = core::Mat<const float>{dt.data(), s.l, s.h, s.h + 1}.Rows(begin, count);
    v.dt_bias = {dt_bias.data(), s.h};
    v.a = {a.data(), s.h};
    v.d_skip = {d_skip.data(), width};
    v.dt_min = dt_min;
    v.dt_max = dt_max;
    v.groups = s.g;
    v.state = {state.data(), s.h * s.n, s.p, s.p};
    v.dy = core::Mat<const float>{dy.data(), s.l, width, width + 1}.Rows(begin, count);
    v.dstate = {out.dstate.data(), s.h * s.n, s.p, s.p};
    v.dx = core::Mat<float>{out.dx.data(), s.l, width, width}.Rows(begin, count);
    v.db = core::Mat<float>{out.db.data(), s.l, bc, bc}.Rows(begin, count);
    v.dc = core::Mat<float>{out.dc.data(), s.l, bc, bc}.Rows(begin, count);
    v.ddt = core::Mat<float>{out.ddt.data(), s.l, s.h, s.h}.Rows(begin, count);
    v.ddt_bias = {out.ddt_bias.data(), s.h};
    v.da = {out.da.data(), s.h};
    v.dd_skip = {out.dd_skip.data(), width};
    v.scratch = {scratch.data(), scratch.size()};
    return v;
  }
  Gradients Zeros() const {
    const size_t width = s.h * s.p, bc = s.g * s.n;
    return {std::vector<float>(s.l * width), std::vector<float>(s.l * bc),
            std::vector<float>(s.l * bc),    std::vector<float>(s.l * s.h),
            std::vector<float>(s.h),         std::vector<float>(s.h),
            std::vector<float>(width),       dstate};
  }
};

// Every element is a sum of products of at most six rounded factors (with random signs) over the
// steps of a chunk, over N or P, over the chunks and over the heads of a group; a decay's exponent
// costs an eps of |v| exp(v) <= 1/e. ddt and da are sums of such sums over L.
double Tolerance(const Shape& s) {
  return 8.0 * (2.0 * 64.0 + static_cast<double>(s.n + s.p + s.h + s.l)) * kEpsF32;
}

bool AllZero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0f; });
}

constexpr Shape kShapes[] = {{1, 1, 1, 1, 1},    {3, 2, 3, 1, 5},     {63, 4, 16, 2, 16},
                             {64, 2, 17, 2, 7},  {65, 3, 33, 3, 20},  {130, 2, 64, 1, 128},
                             {200, 4, 65, 4, 9}, {70, 1, 130, 1, 70}, {129, 8, 1, 2, 3}};

TEST(SsdScanGrad, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(1);
  for (const Shape& s : kShapes) {
    for (const bool limits : {false, true}) {
      Case v(rng, s);
      if (limits) v.dt_min = 0.05f, v.dt_max = 0.5f;
      Gradients want = v.Zeros();
      std::vector<float> scratch;
      SsdScanGradRef(v.Args(want, 0, s.l, scratch));
      ForEachTarget([&] {
        Gradients got = v.Zeros();
        SsdScanGrad(exec, v.Args(got, 0, s.l, scratch));
        for (size_t i = 0; i < got.all().size(); ++i) {
          // Outside the limits dt has no gradient, and 70 steps may leave nothing of a state.
          if (AllZero(*want.all()[i].second) && AllZero(*got.all()[i].second)) continue;
          ASSERT_TRUE(CloseToScale(*got.all()[i].second, *want.all()[i].second, Tolerance(s)))
              << got.all()[i].first << " " << s.l << " " << s.p << " " << s.n << limits;
        }
      });
    }
  }
}

TEST(SsdScanGrad, PiecesOfTimeChain) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  core::Rng rng(2);
  const Shape s{150, 2, 20, 1, 12};
  Case v(rng, s);
  Gradients whole = v.Zeros();
  std::vector<float> scratch;
  SsdScanGrad(exec, v.Args(whole, 0, s.l, scratch));
  // The state after the first piece, by the forward pass.
  constexpr size_t kFirst = 70;
  Case second = v;
  std::vector<float> y(s.l * s.h * s.p), room(s.l * 2 * s.h);
  Gradients unused = v.Zeros();
  const SsdScanGradArgs first = v.Args(unused, 0, kFirst, scratch);
  SsdScanArgs forward{.x = first.x,
                      .b = first.b,
                      .c = first.c,
                      .dt = first.dt,
                      .dt_bias = first.dt_bias,
                      .a = first.a,
                      .d_skip = first.d_skip,
                      .dt_min = v.dt_min,
                      .dt_max = v.dt_max,
                      .groups = s.g,
                      .state = {second.state.data(), s.h * s.n, s.p, s.p},
                      .y = {y.data(), kFirst, s.h * s.p, s.h * s.p},
                      .scratch = {room.data(), kFirst, 2 * s.h, 2 * s.h}};
  SsdScan(exec, forward);
  Gradients pieces = v.Zeros();
  SsdScanGrad(exec, second.Args(pieces, kFirst, s.l - kFirst, scratch));
  SsdScanGrad(exec, v.Args(pieces, 0, kFirst, scratch));
  for (size_t i = 0; i < whole.all().size(); ++i) {
    EXPECT_TRUE(CloseToScale(*pieces.all()[i].second, *whole.all()[i].second, 2.0 * Tolerance(s)))
        << whole.all()[i].first;
  }
}

TEST(SsdScanGrad, ThreadsHaveTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(3);
    Case v(rng, {100, 6, 24, 2, 19});
    core::ThreadPool one(1), three(3);
    core::Exec exec_one{one}, exec_three{three};
    std::vector<float> scratch;
    Gradients a = v.Zeros(), b = v.Zeros();
    SsdScanGrad(exec_one, v.Args(a, 0, v.s.l, scratch));
    SsdScanGrad(exec_three, v.Args(b, 0, v.s.l, scratch));
    for (size_t i = 0; i < a.all().size(); ++i) {
      ASSERT_TRUE(SameBits(*a.all()[i].second, *b.all()[i].second)) << a.all()[i].first;
    }
  });
}

// The oracle's own oracle: central differences of sum(y dy) + sum(state dstate), all in double.
class Differences {
 public:
  explicit Differences(const Case& v) : v_(v), s_(v.s) {}

  double Loss(const std::array<std::vector<double>, 8>& in) const {
    const auto& [x, b, c, dt, bias, a, skip, state] = in;
    std::vector<double> s = state;
    double loss = 0.0;
    for (size_t t = 0; t < s_.l; ++t) {
      for (size_t h = 0; h < s_.h; ++h) {
        const double raw = dt[t * s_.h + h] + bias[h];
        const double softplus = raw > 20.0 ? raw : std::log1p(std::exp(raw));
        const double d = std::min(std::max(softplus, double{v_.dt_min}), double{v_.dt_max});
        const size_t group = h / (s_.h / s_.g);
        for (size_t p = 0; p < s_.p; ++p) {
          const double xt = x[t * s_.h * s_.p + h * s_.p + p];
          double y = skip[h * s_.p + p] * xt;
          for (size_t n = 0; n < s_.n; ++n) {
            double& v = s[(h * s_.n + n) * s_.p + p];
            v = std::exp(d * a[h]) * v + d * xt * b[t * s_.g * s_.n + group * s_.n + n];
            y += v * c[t * s_.g * s_.n + group * s_.n + n];
          }
          loss += y * v_.dy[t * (s_.h * s_.p + 1) + h * s_.p + p];
        }
      }
    }
    for (size_t i = 0; i < s.size(); ++i) loss += s[i] * v_.dstate[i];
    return loss;
  }
  // The first `cols` of every `stride` floats.
  static std::vector<double> Packed(const std::vector<float>& from, size_t rows, size_t cols,
                                    size_t stride) {
    std::vector<double> to;
    for (size_t r = 0; r < rows; ++r) {
      to.insert(to.end(), from.begin() + r * stride, from.begin() + r * stride + cols);
    }
    return to;
  }
  std::array<std::vector<double>, 8> Inputs() const {
    const size_t width = s_.h * s_.p, bc = s_.g * s_.n;
    return {Packed(v_.x, s_.l, width, width + 2),
            Packed(v_.b, s_.l, bc, bc + 1),
            Packed(v_.c, s_.l, bc, bc + 3),
            Packed(v_.dt, s_.l, s_.h, s_.h + 1),
            Packed(v_.dt_bias, 1, s_.h, s_.h),
            Packed(v_.a, 1, s_.h, s_.h),
            Packed(v_.d_skip, 1, width, width),
            Packed(v_.state, 1, v_.state.size(), v_.state.size())};
  }

 private:
  const Case& v_;
  Shape s_;
};

TEST(SsdScanGrad, OracleEqualsCentralDifferences) {
  core::Rng rng(5);
  for (const bool limits : {false, true}) {
    Case v(rng, {5, 4, 3, 2, 2});
    if (limits) v.dt_min = 0.2f, v.dt_max = 0.4f;
    Gradients got = v.Zeros();
    std::vector<float> scratch;
    SsdScanGradRef(v.Args(got, 0, v.s.l, scratch));
    const Differences differences(v);
    const auto inputs = differences.Inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<float> want;
      for (size_t k = 0; k < inputs[i].size(); ++k) {
        auto high = inputs, low = inputs;
        constexpr double kStep = 1e-5;
        high[i][k] += kStep;
        low[i][k] -= kStep;
        want.push_back(
            static_cast<float>((differences.Loss(high) - differences.Loss(low)) / (2.0 * kStep)));
      }
      // Differences: kStep^2 of the third derivative and 1e-16 / kStep; results in f32.
      EXPECT_TRUE(CloseToScale(*got.all()[i].second, want, 1e-6)) << got.all()[i].first;
    }
  }
}

}  // namespace
}  // namespace hognose::kernels
