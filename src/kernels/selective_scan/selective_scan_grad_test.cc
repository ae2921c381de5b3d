#include <algorithm>
#include <cmath>

#include "kernels/selective_scan/selective_scan.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::Flatten;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

// A matrix with rows further apart than they are long.
struct Strided {
  std::vector<float> values;
  core::Mat<float> mat;

  Strided(size_t rows, size_t cols, size_t gap) : values(rows * (cols + gap), 7.0f) {
    mat = {values.data(), rows, cols, cols + gap};
  }
  Strided(core::Rng& rng, size_t rows, size_t cols, size_t gap, double lo, double hi)
      : Strided(rows, cols, gap) {
    std::ranges::copy(RandomValues(rng, values.size(), lo, hi), values.begin());
  }
  Strided(const Strided& other) : values(other.values), mat(other.mat) { mat.data = values.data(); }
};

struct Operands {
  Strided dt, x, z, b, c, a, d_skip, state, dy, dstate;

  Operands(core::Rng& rng, size_t l, size_t e, size_t n)
      : dt(rng, l, e, 1, -7.0, 1.0),
        x(rng, l, e, 2, -1.0, 1.0),
        z(rng, l, e, 3, -4.0, 4.0),
        b(rng, l, n, 4, -1.0, 1.0),
        c(rng, l, n, 5, -1.0, 1.0),
        a(rng, n, e, 6, -16.0, -0.01),
        d_skip(rng, 1, e, 0, -1.0, 1.0),
        state(rng, n, e, 7, -1.0, 1.0),
        dy(rng, l, e, 8, -1.0, 1.0),
        dstate(rng, n, e, 9, -1.0, 1.0) {}
};

// What a call writes; da and dd_skip begin with what they are added to.
struct Results {
  Strided dstate, ddt, dx, dz, db, dc, da, dd_skip;
  std::vector<float> scratch;

  explicit Results(const Operands& in)
      : dstate(in.dstate),
        ddt(in.x.mat.rows, in.x.mat.cols, 3),
        dx(in.x.mat.rows, in.x.mat.cols, 1),
        dz(in.x.mat.rows, in.x.mat.cols, 2),
        db(in.b.mat.rows, in.b.mat.cols, 5),
        dc(in.b.mat.rows, in.b.mat.cols, 4),
        da(in.a.mat.rows, in.a.mat.cols, 1),
        dd_skip(1, in.x.mat.cols, 0),
        scratch(SelectiveScanGradScratch(in.x.mat.rows, in.x.mat.cols, in.b.mat.cols), 7.0f) {
    std::ranges::fill(da.values, 0.25f);
    std::ranges::fill(dd_skip.values, 0.25f);
  }

  std::vector<std::pair<const char*, core::Mat<const float>>> All() const {
    return {{"dstate", dstate.mat}, {"ddt", ddt.mat}, {"dx", dx.mat}, {"dz", dz.mat},
            {"db", db.mat},         {"dc", dc.mat},   {"da", da.mat}, {"dd_skip", dd_skip.mat}};
  }
};

SelectiveScanGradArgs Args(const Operands& in, Results& out) {
  return {.dt = in.dt.mat,
          .x = in.x.mat,
          .z = in.z.mat,
          .b = in.b.mat,
          .c = in.c.mat,
          .a = in.a.mat,
          .d_skip = {in.d_skip.mat.data, in.d_skip.mat.cols},
          .state = in.state.mat,
          .dy = in.dy.mat,
          .dstate = out.dstate.mat,
          .ddt = out.ddt.mat,
          .dx = out.dx.mat,
          .dz = out.dz.mat,
          .db = out.db.mat,
          .dc = out.dc.mat,
          .da = out.da.mat,
          .dd_skip = {out.dd_skip.mat.data, out.dd_skip.mat.cols},
          .scratch = {out.scratch.data(), out.scratch.size()}};
}

// The sizes of the terms of every sum: the oracle on operands that make all of them positive. Only
// ddt has a sum x s + w with w < 0, as a < 0; x s is taken from dx = d_skip g_y + dt s.
Results TermSizes(const Operands& in) {
  Operands sizes = in;
  for (auto* m : {&sizes.x, &sizes.b, &sizes.c, &sizes.d_skip, &sizes.state, &sizes.dstate}) {
    for (auto& v : m->values) v = std::abs(v);
  }
  const size_t l = in.x.mat.rows, e = in.x.mat.cols;
  for (size_t t = 0; t < l; ++t) {
    for (size_t i = 0; i < e; ++i) {  // dy silu(z) >= 0
      float& dy = sizes.dy.mat.Row(t)[i];
      dy = std::copysign(dy, in.z.mat.Row(t)[i]);
    }
  }
  Results out(sizes);
  SelectiveScanGradRef(Args(sizes, out));
  for (size_t t = 0; t < l; ++t) {
    for (size_t i = 0; i < e; ++i) {
      const double raw = in.dt.mat.Row(t)[i], z = in.z.mat.Row(t)[i];
      const double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      const double slope = raw > 20.0 ? 1.0 : 1.0 / (1.0 + std::exp(-raw));
      const double gy = sizes.dy.mat.Row(t)[i] * z / (1.0 + std::exp(-z));
      const double s = (out.dx.mat.Row(t)[i] - sizes.d_skip.mat.data[i] * gy) / dt;
      float& ddt = out.ddt.mat.Row(t)[i];
      ddt = static_cast<float>(2.0 * slope * sizes.x.mat.Row(t)[i] * s - ddt);
    }
  }
  return out;
}

// Of the size of its terms: a state s steps old and a gradient s' old, s + s' <= l, have errors
// (4 s + 8) eps and (4 s' + 8) eps, as in the forward pass; softplus, the gate and their
// derivatives 16 eps; a single step's decay, where nothing larger stands beside it, |dt a| eps,
// softplus(1) 16 = 21 at most here (below 1 where dt is larger). Sums over l, e and n add eps / 2
// for each of their terms.
double Tolerance(size_t l, size_t e, size_t n) {
  return (4.0 * l + 16.0 + 16.0 + 21.0 + 0.5 * (l + e + n)) * kEpsF32;
}

double Largest(const std::vector<float>& values) {
  double largest = 0.0;
  for (const float v : values) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

void ExpectClose(const Results& got, const Results& want, const Results& sizes, double tolerance) {
  const auto wants = want.All(), all_sizes = sizes.All();
  for (size_t i = 0; const auto& [name, mat] : got.All()) {
    const auto flat = Flatten(wants[i].second);
    const double scale = Largest(Flatten(all_sizes[i++].second)) / Largest(flat);
    EXPECT_TRUE(CloseToScale(Flatten(mat), flat, tolerance * scale)) << name;
  }
}

void ExpectGapsUntouched(const Strided& m, float fill) {
  for (size_t i = 0; i < m.values.size(); ++i) {
    if (i % m.mat.stride < m.mat.cols) continue;
    ASSERT_EQ(m.values[i], fill) << i;
  }
}

// `hard`: dt above softplus' linear limit, and decays that are 0.
void Compare(core::Exec& exec, core::Rng& rng, size_t l, size_t e, size_t n, bool hard) {
  Operands in(rng, l, e, n);
  if (hard) {
    in.dt.mat.Row(l / 2)[e / 2] = 30.0f;
    in.dt.mat.Row(l - 1)[0] = 20.5f;
    for (size_t i = 0; i < e; ++i) {
      in.a.mat.Row(n / 2)[i] = i % 2 == 0 ? -1000.0f : -1e30f;
      in.a.mat.Row(0)[i] = -0.01f;  // something must be left to compare
    }
  }
  Results got(in), want(in);
  SelectiveScanGradRef(Args(in, want));
  SelectiveScanGrad(exec, Args(in, got));
  ExpectClose(got, want, TermSizes(in), Tolerance(l, e, n));
  for (const auto* m : {&got.ddt, &got.dx, &got.dz, &got.db, &got.dc}) {
    ExpectGapsUntouched(*m, 7.0f);
  }
  ExpectGapsUntouched(got.da, 0.25f);
}

TEST(SelectiveScanGrad, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t l : {1, 2, 3, 17, 33, 64, 65}) {
      for (const size_t e : {1, 3, 8, 17, 40, 70}) {
        for (const size_t n : {1, 4, 5, 16, 40}) {
          for (const bool hard : {false, true}) {
            SCOPED_TRACE(::testing::Message() << l << " " << e << " " << n << " " << hard);
            Compare(exec, rng, l, e, n, hard);
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

TEST(SelectiveScanGrad, AnyThreadCountHasTheSameBitsAndSumsAreOptional) {
  ForEachTarget([&] {
    core::Rng rng(2);
    const Operands in(rng, 70, 300, 18);
    core::ThreadPool one(1), three(3);
    core::Exec exec_one{one}, exec_three{three};
    Results a(in), b(in), c(in);
    SelectiveScanGrad(exec_one, Args(in, a));
    SelectiveScanGrad(exec_three, Args(in, b));
    auto without = Args(in, c);
    without.da = {};
    without.dd_skip = {};
    SelectiveScanGrad(exec_three, without);
    const auto as = a.All(), bs = b.All(), cs = c.All();
    for (size_t i = 0; i < as.size(); ++i) {
      EXPECT_TRUE(SameBits(Flatten(as[i].second), Flatten(bs[i].second))) << as[i].first;
      if (i + 2 >= as.size()) continue;
      EXPECT_TRUE(SameBits(Flatten(as[i].second), Flatten(cs[i].second))) << as[i].first;
    }
  });
}

SelectiveScanGradArgs Piece(SelectiveScanGradArgs v, size_t begin, size_t count) {
  for (auto* m : {&v.dt, &v.x, &v.z, &v.b, &v.c, &v.dy}) *m = m->Rows(begin, count);
  for (auto* m : {&v.ddt, &v.dx, &v.dz, &v.db, &v.dc}) *m = m->Rows(begin, count);
  return v;
}

TEST(SelectiveScanGrad, PiecesChainedFromTheLastGiveTheGradientOfTheWhole) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(3);
    const size_t l = 41, e = 37, n = 9;
    const Operands in(rng, l, e, n);
    Results whole(in);
    SelectiveScanGrad(exec, Args(in, whole));
    for (const size_t split : {1, 15, 16, 17, 40}) {
      SCOPED_TRACE(split);
      Strided state(in.state), y(split, e, 0);
      SelectiveScan(exec, {.dt = in.dt.mat.Rows(0, split),
                           .x = in.x.mat.Rows(0, split),
                           .z = in.z.mat.Rows(0, split),
                           .b = in.b.mat.Rows(0, split),
                           .c = in.c.mat.Rows(0, split),
                           .a = in.a.mat,
                           .d_skip = {in.d_skip.mat.data, e},
                           .state = state.mat,
                           .y = y.mat});
      Results parts(in);
      auto second = Piece(Args(in, parts), split, l - split);
      second.state = state.mat;
      SelectiveScanGrad(exec, second);
      SelectiveScanGrad(exec, Piece(Args(in, parts), 0, split));
      // Both sides are rounded.
      ExpectClose(parts, whole, TermSizes(in), 2.0 * Tolerance(l, e, n));
    }
  });
}

// The loss of which dy and dstate are the gradients, in double. `value` with `delta` added to it.
double Loss(const Operands& in, const float* value, double delta) {
  const auto at = [&](const Strided& m, size_t row, size_t col) {
    const float* p = m.mat.Row(row) + col;
    return *p + (p == value ? delta : 0.0);
  };
  double loss = 0.0;
  for (size_t e = 0; e < in.x.mat.cols; ++e) {
    std::vector<double> h(in.b.mat.cols);
    for (size_t n = 0; n < h.size(); ++n) h[n] = at(in.state, n, e);
    for (size_t t = 0; t < in.x.mat.rows; ++t) {
      const double raw = at(in.dt, t, e), x = at(in.x, t, e), z = at(in.z, t, e);
      const double dt = raw > 20.0 ? raw : std::log1p(std::exp(raw));
      double y = at(in.d_skip, 0, e) * x;
      for (size_t n = 0; n < h.size(); ++n) {
        h[n] = std::exp(dt * at(in.a, n, e)) * h[n] + dt * x * at(in.b, t, n);
        y += at(in.c, t, n) * h[n];
      }
      loss += in.dy.mat.Row(t)[e] * y * z / (1.0 + std::exp(-z));
    }
    for (size_t n = 0; n < h.size(); ++n) loss += in.dstate.mat.Row(n)[e] * h[n];
  }
  return loss;
}

// Against central differences of step 1e-5: they are off by 1e-10 f''' / 6 with f''' <= 10 of the
// scale here, and by 2^-53 |loss| / 1e-5 = 1e-11 |loss|: below 1e-9. Both sides are
// rounded to f32 once, eps / 2 each.
TEST(SelectiveScanGradRef, EqualsCentralDifferences) {
  core::Rng rng(4);
  Operands in(rng, 6, 3, 4);
  in.dt.mat.Row(2)[1] = 23.0f;
  for (size_t e = 0; e < 3; ++e) in.a.mat.Row(1)[e] = -0.5f;
  Results out(in);
  std::ranges::fill(out.da.values, 0.0f);
  std::ranges::fill(out.dd_skip.values, 0.0f);
  SelectiveScanGradRef(Args(in, out));
  struct Pair {
    const char* name;
    const Strided& operand;
    const Strided& gradient;
  };
  for (const auto& [name, operand, gradient] :
       {Pair{"dt", in.dt, out.ddt}, Pair{"x", in.x, out.dx}, Pair{"z", in.z, out.dz},
        Pair{"b", in.b, out.db}, Pair{"c", in.c, out.dc}, Pair{"a", in.a, out.da},
        Pair{"d_skip", in.d_skip, out.dd_skip}, Pair{"state", in.state, out.dstate}}) {
    std::vector<float> want;
    for (size_t row = 0; row < operand.mat.rows; ++row) {
      for (size_t col = 0; col < operand.mat.cols; ++col) {
        const float* value = operand.mat.Row(row) + col;
        constexpr double kStep = 1e-5;
        want.push_back(
            static_cast<float>((Loss(in, value, kStep) - Loss(in, value, -kStep)) / (2.0 * kStep)));
      }
    }
    EXPECT_TRUE(CloseToScale(Flatten(gradient.mat), want, kEpsF32 + 1e-9)) << name;
  }
}

}  // namespace
}  // namespace hognose::kernels
