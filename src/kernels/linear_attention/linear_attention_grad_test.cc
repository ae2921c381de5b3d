#include <algorithm>

#include "kernels/linear_attention/attention_testing.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::SameBits;

// Sums over P and N, then over a chunk's steps, there and back over chunks.
double Tolerance(const AttentionCase& c) {
  return SumTolerance(static_cast<double>(c.n + c.p + 2 * 64 + 4 * (c.l / 64) + 32));
}

bool AllZero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0f; });
}

void ExpectClose(AttentionGradients& got, AttentionGradients& want, const AttentionCase& c,
                 double tolerance) {
  for (size_t i = 0; i < want.all().size(); ++i) {
    const auto [name, values] = want.all()[i];
    const std::vector<float>& results = *got.all()[i].second;
    if (AllZero(*values) && AllZero(results)) continue;  // relu leaves nothing of some heads
    if (values == &want.dlog_decay) {
      // Sums over N P products of two values in [-1, 1), of mean square 1 / 9: one of them may be
      // small, its error is that of the others.
      double scale = std::sqrt(static_cast<double>(c.n * c.p)) / 3.0;
      for (const float x : *values) scale = std::max(scale, std::abs(static_cast<double>(x)));
      ASSERT_TRUE(testing::Within(results, *values, tolerance * scale)) << name << " " << c.name();
      continue;
    }
    ASSERT_TRUE(CloseToScale(results, *values, tolerance)) << name << " " << c.name();
  }
}

TEST(LinearAttentionGrad, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(1);
  const AttentionCase shapes[] = {
      {.l = 1, .h = 4, .n = 8, .p = 16},
      {.l = 2, .h = 2, .n = 33, .p = 8},
      {.l = 3, .h = 3, .n = 1, .p = 64},
      {.l = 31, .h = 2, .n = 64, .p = 1},
      {.l = 65, .h = 2, .n = 16, .p = 33},
      {.starts = {0, 1, 1, 66, 128, 131}, .l = 131, .h = 3, .n = 12, .p = 20},
      {.starts = {2, 100, 180}, .l = 190, .h = 2, .n = 7, .p = 5},
      {.l = 140, .h = 1, .n = 256, .p = 256},                          // two chunks a span
      {.starts = {0, 1100, 1200}, .l = 1200, .h = 9, .n = 4, .p = 3},  // not in spans
      {.l = 1000, .h = 1, .n = 128, .p = 64},                          // in spans
  };
  for (const AttentionCase& shape : shapes) {
    for (size_t form = 0; form < kAttentionForms; ++form) {
      AttentionCase c = Form(shape, form);
      // A normalised output of one step or of one feature does not depend on q: dq is 0, and what
      // rounding leaves of terms that cancel has nothing to be compared with.
      if (c.normalised && c.n == 1) continue;
      if (c.normalised && c.l == 1) c.states = true;
      const AttentionOperands v(rng, c);
      AttentionResults forward(c);
      LinearAttentionRef(forward.Args(v));
      AttentionGradients want(v);
      LinearAttentionGradRef(want.Args(v, forward));
      ForEachTarget([&] {
        AttentionGradients got(v);
        RunAttention(exec, got.Args(v, forward));
        ExpectClose(got, want, c, Tolerance(c));
      });
    }
  }
}

TEST(LinearAttentionGrad, ThreadsHaveTheSameBits) {
  core::ThreadPool one(1), three(3);
  core::Exec exec_one{one}, exec_three{three};
  for (const size_t heads : {2, 17}) {
    for (size_t form = 0; form < kAttentionForms; ++form) {
      core::Rng rng(3);
      const AttentionCase c = Form({.l = 1500, .h = heads, .n = 10, .p = 6}, form);
      const AttentionOperands v(rng, c);
      AttentionResults forward(c);
      RunAttention(exec_one, forward.Args(v));
      AttentionGradients a(v), b(v);
      RunAttention(exec_one, a.Args(v, forward));
      RunAttention(exec_three, b.Args(v, forward));
      for (size_t i = 0; i < a.all().size(); ++i) {
        if (a.all()[i].second->empty()) continue;
        ASSERT_TRUE(SameBits(*a.all()[i].second, *b.all()[i].second)) << a.all()[i].first;
      }
    }
  }
}

// Rows [begin, begin + count) as one sequence; states are the caller's affair.
LinearAttentionGradArgs Piece(LinearAttentionGradArgs a, size_t begin, size_t count) {
  const auto rows = [&](auto& m) {
    if (m.rows != 0) m = m.Rows(begin, count);
  };
  a.starts = {};
  rows(a.q), rows(a.k), rows(a.v), rows(a.log_decay), rows(a.o), rows(a.normaliser), rows(a.d_o);
  rows(a.dq), rows(a.dk), rows(a.dv), rows(a.dlog_decay);
  return a;
}

TEST(LinearAttentionGrad, PackedDocumentsEqualSeparateOnes) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(4);
  for (size_t form = 0; form < kAttentionForms; ++form) {
    AttentionCase c =
        Form({.starts = {0, 40, 41, 300, 300, 429}, .l = 429, .h = 2, .n = 9, .p = 33}, form);
    c.states = true;
    const AttentionOperands v(rng, c);
    AttentionResults forward(c);
    RunAttention(exec, forward.Args(v));
    AttentionGradients packed(v), separate(v);
    RunAttention(exec, packed.Args(v, forward));
    for (size_t b = 0; b < c.sequences(); ++b) {
      LinearAttentionGradArgs a = separate.Args(v, forward);
      a.initial_state = a.initial_state.Rows(b * c.h * c.n, c.h * c.n);
      a.dstate = a.dstate.Rows(b * c.h * c.n, c.h * c.n);
      RunAttention(exec, Piece(a, c.starts[b], c.starts[b + 1] - c.starts[b]));
    }
    // No document is longer than a span: the same sums in the same order.
    for (size_t i = 0; i < packed.all().size(); ++i) {
      if (packed.all()[i].second->empty()) continue;
      EXPECT_TRUE(SameBits(*packed.all()[i].second, *separate.all()[i].second))
          << packed.all()[i].first << " " << c.name();
    }
  }
}

TEST(LinearAttentionGrad, PiecesOfTimeChain) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(5);
  constexpr size_t kFirst = 70;
  for (const size_t form : kCausalForms) {
    AttentionCase c = Form({.l = 1200, .h = 2, .n = 16, .p = 24}, form);
    c.states = true;
    const AttentionOperands v(rng, c);
    AttentionResults forward(c), first(c);
    RunAttention(exec, forward.Args(v));
    LinearAttentionArgs until = first.Args(v);
    until.q = until.q.Rows(0, kFirst);
    until.k = until.k.Rows(0, kFirst);
    until.v = until.v.Rows(0, kFirst);
    until.o = until.o.Rows(0, kFirst);
    if (c.decay) until.log_decay = until.log_decay.Rows(0, kFirst);
    RunAttention(exec, until);
    AttentionGradients whole(v), pieces(v);
    RunAttention(exec, whole.Args(v, forward));
    LinearAttentionGradArgs a = pieces.Args(v, forward);
    a.initial_state = until.final_state;
    RunAttention(exec, Piece(a, kFirst, c.l - kFirst));
    RunAttention(exec, Piece(pieces.Args(v, forward), 0, kFirst));
    ExpectClose(pieces, whole, c, 2.0 * Tolerance(c));
  }
}

// The oracle's own oracle: central differences of sum(o d_o) + sum(final state dstate), all in
// double.
class Differences {
 public:
  // q, k, v, log_decay, initial state.
  using Inputs = std::array<std::vector<double>, 5>;

  explicit Differences(const AttentionOperands& v) : v_(v), c_(v.c) {}

  Inputs inputs() const {
    const auto packed = [](const core::Mat<const float>& m) {
      const auto values = testing::Flatten(m);
      return std::vector<double>(values.begin(), values.end());
    };
    const LinearAttentionArgs a = v_.Forward();
    return {packed(a.q), packed(a.k), packed(a.v), packed(a.log_decay), packed(a.initial_state)};
  }
  double Loss(const Inputs& in) const {
    double loss = 0.0;
    for (size_t b = 0; b < c_.sequences(); ++b) {
      for (size_t h = 0; h < c_.h; ++h) loss += HeadLoss(in, b, h);
    }
    return loss;
  }

 private:
  double Feature(double x) const {
    if (c_.feature_map == FeatureMap::kIdentity) return x;
    if (c_.feature_map == FeatureMap::kRelu) return std::max(x, 0.0);
    return x > 0.0 ? x + 1.0 : std::exp(x);
  }
  double HeadLoss(const Inputs& in, size_t b, size_t h) const {
    const auto& [q, k, v, log_decay, initial] = in;
    const size_t columns = c_.columns(), first = (b * c_.h + h) * c_.n * columns;
    std::vector<double> s(c_.n * columns);
    for (size_t i = 0; i < s.size() && c_.states; ++i) s[i] = initial[first + i];
    double loss = 0.0;
    const auto output = [&](size_t t) {
      std::vector<double> o(columns);
      for (size_t i = 0; i < s.size(); ++i) {
        o[i % columns] += Scale() * Feature(q[(t * c_.h + h) * c_.n + i / columns]) * s[i];
      }
      for (size_t p = 0; p < c_.p; ++p) {
        const double d_o = v_.d_o[t * (c_.h * c_.p + 1) + h * c_.p + p];
        loss += d_o * (c_.normalised ? o[p] / (o[c_.p] + 1e-10) : o[p]);
      }
    };
    const size_t begin = c_.starts.empty() ? 0 : c_.starts[b];
    const size_t end = c_.starts.empty() ? c_.l : c_.starts[b + 1];
    for (size_t t = begin; t < end; ++t) {
      for (size_t i = 0; i < s.size(); ++i) {
        const size_t p = i % columns;
        const double value = p == c_.p ? 1.0 : v[(t * c_.h + h) * c_.p + p];
        const double decay = c_.decay ? std::exp(log_decay[t * c_.h + h]) : 1.0;
        s[i] = decay * s[i] + Feature(k[(t * c_.h + h) * c_.n + i / columns]) * value;
      }
      if (c_.causal) output(t);
    }
    for (size_t t = begin; t < end && !c_.causal; ++t) output(t);
    for (size_t i = 0; i < s.size() && c_.states; ++i) loss += s[i] * v_.dfinal[first + i];
    return loss;
  }
  double Scale() const {
    return c_.scale != 0.0f ? double{c_.scale} : 1.0 / std::sqrt(static_cast<double>(c_.n));
  }

  const AttentionOperands& v_;
  const AttentionCase& c_;
};

TEST(LinearAttentionGrad, OracleEqualsCentralDifferences) {
  core::Rng rng(6);
  for (size_t form = 0; form < 3 * kAttentionForms; ++form) {
    AttentionCase c =
        Form({.starts = {0, 5, 9}, .l = 9, .h = 2, .n = 3, .p = 2}, form % kAttentionForms);
    c.feature_map = static_cast<FeatureMap>(form / kAttentionForms);
    AttentionOperands v(rng, c);
    // Differences say nothing where relu has its kink, nor behind a step that forgets everything.
    for (auto* values : {&v.q, &v.k}) {
      for (auto& x : *values) x += x >= 0.0f ? 0.01f : -0.01f;
    }
    for (auto& g : v.log_decay) g = std::max(g, -0.2f);
    AttentionResults forward(c);
    LinearAttentionRef(forward.Args(v));
    AttentionGradients got(v);
    LinearAttentionGradRef(got.Args(v, forward));
    const Differences differences(v);
    const auto inputs = differences.inputs();
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
      if (want.empty()) continue;
      // Differences: kStep^2 of the third derivative and 1e-16 / kStep; results in f32.
      EXPECT_TRUE(CloseToScale(*got.all()[i].second, want, 1e-6))
          << got.all()[i].first << " " << c.name();
    }
  }
}

}  // namespace
}  // namespace hognose::kernels
