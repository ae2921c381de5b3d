// For linear_attention's tests: a call with random operands, its results and its gradient's.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear_attention/linear_attention.h"
#include "tests/support/compare.h"

namespace hognose::kernels {

struct AttentionCase {
  std::vector<size_t> starts = {};  // as they are given; none: one sequence
  size_t l = 1, h = 1, n = 1, p = 1;
  FeatureMap feature_map = FeatureMap::kIdentity;
  float scale = 0.0f;
  bool causal = true, normalised = false, decay = false, states = true;

  size_t sequences() const { return starts.empty() ? 1 : starts.size() - 1; }
  size_t columns() const { return p + (normalised ? 1 : 0); }
  size_t state_rows() const { return sequences() * h * n; }
  std::string name() const {
    return "L " + std::to_string(l) + " H " + std::to_string(h) + " N " + std::to_string(n) +
           " P " + std::to_string(p) + " sequences " + std::to_string(sequences()) + " map " +
           std::to_string(static_cast<int>(feature_map)) + (causal ? " causal" : "") +
           (normalised ? " normalised" : "") + (decay ? " decay" : "") + (states ? " states" : "");
  }
};

// A form of a call, each with another feature map and what goes with it.
inline constexpr size_t kAttentionForms = 6;
inline AttentionCase Form(AttentionCase c, size_t form) {
  c.feature_map = static_cast<FeatureMap>(form % 3);
  c.decay = form == 1 || form == 4;
  c.normalised = form == 2 || form == 4 || form == 5;
  c.causal = form != 3 && form != 5;
  c.states = form % 2 == 0;
  if (form == 1) c.scale = 0.3f;
  return c;
}
inline constexpr size_t kCausalForms[] = {0, 1, 2, 4};

// Rows have some floats more than their columns, which differ between operands.
struct AttentionOperands {
  AttentionCase c;
  std::vector<float> q, k, v, log_decay, initial, d_o, dfinal;

  AttentionOperands(core::Rng& rng, const AttentionCase& the_case)
      : c(the_case),
        q(testing::RandomValues(rng, c.l * (c.h * c.n + 1), -1.0, 1.0)),
        k(testing::RandomValues(rng, c.l * (c.h * c.n + 2), -1.0, 1.0)),
        v(testing::RandomValues(rng, c.l * (c.h * c.p + 3), -1.0, 1.0)),
        log_decay(testing::RandomValues(rng, c.l * (c.h + 1), -0.2, 0.0)),
        initial(testing::RandomValues(rng, c.state_rows() * (c.columns() + 1), -1.0, 1.0)),
        d_o(testing::RandomValues(rng, c.l * (c.h * c.p + 1), -1.0, 1.0)),
        dfinal(testing::RandomValues(rng, c.state_rows() * c.columns(), -1.0, 1.0)) {
    // A step that forgets everything, among those that forget little.
    if (c.l > 5) log_decay[4 * (c.h + 1)] = -200.0f;
    if (!c.normalised) return;
    // A divisor near 0 would make any error large: no sign but one. elu(x) + 1 has but one anyway.
    const auto make_positive = [](std::vector<float>& values) {
      for (auto& x : values) x = std::abs(x) + 0.01f;
    };
    make_positive(initial);
    if (c.feature_map == FeatureMap::kEluPlusOne) return;
    make_positive(q);
    make_positive(k);
  }

  LinearAttentionArgs Forward() const {
    LinearAttentionArgs a{.q = {q.data(), c.l, c.h * c.n, c.h * c.n + 1},
                          .k = {k.data(), c.l, c.h * c.n, c.h * c.n + 2},
                          .v = {v.data(), c.l, c.h * c.p, c.h * c.p + 3},
                          .heads = c.h,
                          .starts = {c.starts.data(), c.starts.size()},
                          .feature_map = c.feature_map,
                          .scale = c.scale,
                          .causal = c.causal,
                          .normalised = c.normalised};
    if (c.decay) a.log_decay = {log_decay.data(), c.l, c.h, c.h + 1};
    if (c.states) a.initial_state = {initial.data(), c.state_rows(), c.columns(), c.columns() + 1};
    return a;
  }
};

struct AttentionResults {
  std::vector<float> o, normaliser, final_state;

  explicit AttentionResults(const AttentionCase& c)
      : o(c.l * c.h * c.p, 7.0f),
        normaliser(c.l * c.h),
        final_state(c.state_rows() * c.columns()) {}

  // The operands with these results.
  LinearAttentionArgs Args(const AttentionOperands& from) {
    const AttentionCase& c = from.c;
    LinearAttentionArgs a = from.Forward();
    a.o = {o.data(), c.l, c.h * c.p, c.h * c.p};
    if (c.normalised) a.normaliser = {normaliser.data(), c.l, c.h, c.h};
    if (c.states) a.final_state = {final_state.data(), c.state_rows(), c.columns(), c.columns()};
    return a;
  }
};

struct AttentionGradients {
  std::vector<float> dq, dk, dv, dlog_decay, dstate;

  explicit AttentionGradients(const AttentionOperands& from)
      : dq(from.c.l * from.c.h * from.c.n, 7.0f),
        dk(dq),
        dv(from.c.l * from.c.h * from.c.p, 7.0f),
        dlog_decay(from.c.decay ? from.c.l * from.c.h : 0),
        dstate(from.c.states ? from.dfinal : std::vector<float>()) {}

  std::array<std::pair<const char*, std::vector<float>*>, 5> all() {
    return {
        {{"dq", &dq}, {"dk", &dk}, {"dv", &dv}, {"dlog_decay", &dlog_decay}, {"dstate", &dstate}}};
  }
  LinearAttentionGradArgs Args(const AttentionOperands& from, AttentionResults& forward) {
    const AttentionCase& c = from.c;
    const LinearAttentionArgs f = forward.Args(from);
    LinearAttentionGradArgs a{.q = f.q,
                              .k = f.k,
                              .v = f.v,
                              .log_decay = f.log_decay,
                              .heads = f.heads,
                              .starts = f.starts,
                              .feature_map = f.feature_map,
                              .scale = f.scale,
                              .causal = f.causal,
                              .normalised = f.normalised,
                              .initial_state = f.initial_state,
                              .o = f.o,
                              .normaliser = f.normaliser,
                              .d_o = {from.d_o.data(), c.l, c.h * c.p, c.h * c.p + 1},
                              .dq = {dq.data(), c.l, c.h * c.n, c.h * c.n},
                              .dk = {dk.data(), c.l, c.h * c.n, c.h * c.n},
                              .dv = {dv.data(), c.l, c.h * c.p, c.h * c.p}};
    if (c.decay) a.dlog_decay = {dlog_decay.data(), c.l, c.h, c.h};
    if (c.states) a.dstate = {dstate.data(), c.state_rows(), c.columns(), c.columns()};
    return a;
  }
};

// Calls with their scratch.
inline void RunAttention(core::Exec& exec, LinearAttentionArgs args) {
  std::vector<float> scratch(LinearAttentionScratch(args));
  args.scratch = {scratch.data(), scratch.size()};
  LinearAttention(exec, args);
}
inline void RunAttention(core::Exec& exec, LinearAttentionGradArgs args) {
  std::vector<float> scratch(LinearAttentionGradScratch(args));
  args.scratch = {scratch.data(), scratch.size()};
  LinearAttentionGrad(exec, args);
}

// Largest error over largest value of a sum of m terms in f32. Each of its m roundings is at most
// eps / 2 of the sum so far, 0.29 eps as the root of a mean square; a sum so far is as sqrt(i / m)
// of the whole with terms of random signs, at most i / m with terms of one sign: together 0.29 eps
// sqrt(m / 2) of the root mean square of such sums. The largest of some thousand errors is 4 of
// these, and the largest value is no smaller than one: 1.2 sqrt(m / 2) eps, for results that are
// few and small twice that.
inline double SumTolerance(double m) { return 2.4 * std::sqrt(m / 2.0) * testing::kEpsF32; }

}  // namespace hognose::kernels
