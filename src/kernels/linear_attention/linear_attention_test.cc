#include "kernels/linear_attention/linear_attention.h"

#include <limits>

#include "kernels/linear_attention/attention_testing.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::SameBits;

// Sums over N, over a chunk's steps and over chunks, and the roundings of features, decays and
// scale.
double Tolerance(const AttentionCase& c) {
  return SumTolerance(static_cast<double>(c.n + 64 + 2 * (c.l / 64) + 16));
}

void ExpectOracle(core::Exec& exec, core::Rng& rng, const AttentionCase& c, double tolerance) {
  const AttentionOperands v(rng, c);
  AttentionResults want(c);
  LinearAttentionRef(want.Args(v));
  ForEachTarget([&] {
    AttentionResults got(c);
    RunAttention(exec, got.Args(v));
    ASSERT_TRUE(CloseToScale(got.o, want.o, tolerance)) << c.name();
    if (c.states) {
      ASSERT_TRUE(CloseToScale(got.final_state, want.final_state, Tolerance(c))) << c.name();
    }
    if (c.normalised) {
      ASSERT_TRUE(CloseToScale(got.normaliser, want.normaliser, Tolerance(c))) << c.name();
    }
  });
}

TEST(LinearAttention, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(1);
  const AttentionCase shapes[] = {
      {.l = 5, .h = 2, .n = 8, .p = 1},
      {.l = 3, .h = 3, .n = 4, .p = 128},
      {.l = 65, .h = 2, .n = 16, .p = 33},
      {.l = 130, .h = 1, .n = 33, .p = 8},
      {.starts = {0, 1, 1, 66, 128, 131}, .l = 131, .h = 3, .n = 12, .p = 20},
      {.starts = {2, 100, 180}, .l = 190, .h = 2, .n = 7, .p = 5},
      {.l = 200, .h = 1, .n = 200, .p = 256},                          // two chunks a span
      {.starts = {0, 1100, 1200}, .l = 1200, .h = 9, .n = 4, .p = 3},  // not in spans
      {.l = 2100, .h = 2, .n = 8, .p = 16},                            // in spans
  };
  for (const AttentionCase& shape : shapes) {
    for (size_t form = 0; form < kAttentionForms; ++form) {
      const AttentionCase c = Form(shape, form);
      ExpectOracle(exec, rng, c, Tolerance(c));
    }
  }
}

// What is asked of the outputs, however long sums are: chunks of 64 steps, heads of N = P.
TEST(LinearAttention, OutputsAreWithinAMillionth) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(2);
  size_t form = 0;
  for (const size_t l : {1, 2, 3, 31, 33, 1000}) {
    for (const size_t n : {1, 8, 16, 33, 64, 128}) {
      for (size_t i = 0; i < 2; ++i) {
        AttentionCase c = Form({.l = l, .h = 2, .n = n, .p = n}, form++ % kAttentionForms);
        // One feature that is 0 leaves nothing to compare.
        if (c.feature_map == FeatureMap::kRelu && n == 1) c.feature_map = FeatureMap::kIdentity;
        ExpectOracle(exec, rng, c, 1e-6);
      }
    }
  }
}

TEST(LinearAttention, SpansAreChosenByShape) {
  EXPECT_TRUE(LinearAttentionInSpans(1, 1, 2));
  EXPECT_TRUE(LinearAttentionInSpans(3, 5, 4));
  EXPECT_FALSE(LinearAttentionInSpans(1, 1, 1));   // nothing to run at once
  EXPECT_FALSE(LinearAttentionInSpans(2, 8, 40));  // enough tasks already
}

TEST(LinearAttention, ThreadsHaveTheSameBits) {
  core::ThreadPool one(1), three(3);
  core::Exec exec_one{one}, exec_three{three};
  for (const size_t heads : {2, 17}) {
    for (size_t form = 0; form < kAttentionForms; ++form) {
      core::Rng rng(3);
      const AttentionCase c = Form({.l = 1500, .h = heads, .n = 10, .p = 6}, form);
      const AttentionOperands v(rng, c);
      AttentionResults a(c), b(c);
      RunAttention(exec_one, a.Args(v));
      RunAttention(exec_three, b.Args(v));
      ASSERT_TRUE(SameBits(a.o, b.o)) << c.name();
      ASSERT_TRUE(SameBits(a.final_state, b.final_state)) << c.name();
    }
  }
}

// Rows [begin, begin + count) of a call's operands, as one sequence with states of its own.
LinearAttentionArgs Piece(LinearAttentionArgs a, size_t begin, size_t count) {
  a.starts = {};
  a.q = a.q.Rows(begin, count);
  a.k = a.k.Rows(begin, count);
  a.v = a.v.Rows(begin, count);
  a.o = a.o.Rows(begin, count);
  if (a.log_decay.rows != 0) a.log_decay = a.log_decay.Rows(begin, count);
  if (a.normaliser.rows != 0) a.normaliser = a.normaliser.Rows(begin, count);
  return a;
}

TEST(LinearAttention, PackedDocumentsEqualSeparateOnes) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(4);
  for (size_t form = 0; form < kAttentionForms; ++form) {
    AttentionCase c =
        Form({.starts = {0, 40, 41, 300, 300, 429}, .l = 429, .h = 2, .n = 9, .p = 33}, form);
    c.states = true;
    const AttentionOperands v(rng, c);
    AttentionResults packed(c), separate(c);
    RunAttention(exec, packed.Args(v));
    for (size_t b = 0; b < c.sequences(); ++b) {
      LinearAttentionArgs a = separate.Args(v);
      a.initial_state = a.initial_state.Rows(b * c.h * c.n, c.h * c.n);
      a.final_state = a.final_state.Rows(b * c.h * c.n, c.h * c.n);
      RunAttention(exec, Piece(a, c.starts[b], c.starts[b + 1] - c.starts[b]));
    }
    // No document is longer than a span: the same sums in the same order.
    EXPECT_TRUE(SameBits(packed.o, separate.o)) << c.name();
    EXPECT_TRUE(SameBits(packed.final_state, separate.final_state)) << c.name();
  }
}

TEST(LinearAttention, PiecesWithStatesEqualTheWhole) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(5);
  for (const size_t form : kCausalForms) {
    AttentionCase c = Form({.l = 1300, .h = 2, .n = 16, .p = 24}, form);
    c.states = true;
    const AttentionOperands v(rng, c);
    AttentionResults whole(c), pieces(c);
    RunAttention(exec, whole.Args(v));
    size_t begin = 0;
    for (const size_t count : {1, 63, 64, 100, 1072}) {
      LinearAttentionArgs a = pieces.Args(v);
      if (begin > 0) a.initial_state = a.final_state;
      RunAttention(exec, Piece(a, begin, count));
      begin += count;
    }
    ASSERT_EQ(begin, c.l);
    // Either is as far from the exact result as the oracle's test allows.
    EXPECT_TRUE(CloseToScale(pieces.o, whole.o, 2.0 * Tolerance(c))) << c.name();
    EXPECT_TRUE(CloseToScale(pieces.final_state, whole.final_state, 2.0 * Tolerance(c)));
  }
}

TEST(LinearAttention, NothingToDoPassesTheStateOn) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  core::Rng rng(6);
  for (const bool causal : {true, false}) {
    AttentionCase c{.starts = {0, 0}, .l = 1, .h = 2, .n = 5, .p = 3, .causal = causal};
    const AttentionOperands v(rng, c);
    AttentionResults got(c);
    RunAttention(exec, got.Args(v));
    const auto want = testing::Flatten(v.Forward().initial_state);
    EXPECT_TRUE(SameBits(got.final_state, want));
    EXPECT_EQ(got.o[0], 7.0f);  // of no sequence
  }
}

TEST(LinearAttention, NaNStays) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  core::Rng rng(7);
  for (size_t map = 0; map < 3; ++map) {
    AttentionCase c{.l = 3, .n = 4, .p = 2, .feature_map = static_cast<FeatureMap>(map)};
    AttentionOperands v(rng, c);
    v.k[1 * (c.n + 2)] = std::numeric_limits<float>::quiet_NaN();
    ForEachTarget([&] {
      AttentionResults got(c);
      RunAttention(exec, got.Args(v));
      EXPECT_FALSE(std::isnan(got.o[0]));
      for (size_t i = c.p; i < got.o.size(); ++i) EXPECT_TRUE(std::isnan(got.o[i])) << map;
    });
  }
}

}  // namespace
}  // namespace hognose::kernels
