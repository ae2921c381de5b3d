#include "kernels/attention/attention.h"

#include <cmath>
#include <limits>
#include <utility>

#include "kernels/attention/attention_blocks.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;
using testing::Within;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  size_t queries, keys, heads, key_heads, width;
  size_t window = 0;
  bool causal = true;
};

struct Case {
  Shape s;
  std::vector<float> q, k, v, y, want, scratch;
  AttentionArgs args;

  Case(core::Rng& rng, const Shape& shape)
      : s(shape),
        q(RandomValues(rng, s.queries * (s.heads * s.width + 3), -1.0, 1.0)),
        k(RandomValues(rng, s.keys * (s.key_heads * s.width + 1), -1.0, 1.0)),
        v(RandomValues(rng, s.keys * (s.key_heads * s.width + 2), -1.0, 1.0)),
        y(s.queries * (s.heads * s.width + 1), 7.0f),
        want(y),
        scratch(AttentionScratch(s.queries, s.keys, s.heads, s.width)) {
    const size_t cols = s.heads * s.width, key_cols = s.key_heads * s.width;
    args.q = {q.data(), s.queries, cols, cols + 3};
    args.k = {k.data(), s.keys, key_cols, key_cols + 1};
    args.v = {v.data(), s.keys, key_cols, key_cols + 2};
    args.heads = s.heads;
    args.key_heads = s.key_heads;
    args.causal = s.causal;
    args.window = s.window;
    args.y = {y.data(), s.queries, cols, cols + 1};
    args.scratch = {scratch.data(), scratch.size()};
  }
  Case(const Case&) = delete;  // its views would stay those of the first

  AttentionArgs Want() {
    AttentionArgs a = args;
    a.y.data = want.data();
    return a;
  }
  std::vector<float> Result(core::Exec& exec) {
    std::fill(y.begin(), y.end(), 7.0f);
    Attention(exec, args);
    return y;
  }
};

// The largest length of a row's heads.
double LargestNorm(core::Mat<const float> m, size_t width) {
  double largest = 0.0;
  for (size_t r = 0; r < m.rows; ++r) {
    for (size_t c = 0; c < m.cols; c += width) {
      double sum = 0.0;
      for (size_t i = 0; i < width; ++i)
        sum += static_cast<double>(m.Row(r)[c + i]) * m.Row(r)[c + i];
      largest = std::max(largest, std::sqrt(sum));
    }
  }
  return largest;
}

// The header's bound, |v| <= 1. Where it comes from, with eps / 2 for one rounding: a score has P
// products of factors with two roundings, P + 1 roundings of its sum without a fused product, and
// one of its difference to the maximum, which is at most 2 S: (P + 6) S / 2 eps in the exponent. A
// new maximum's factor has one such difference again, 2 S for all together. 2^x itself has 0.7 eps.
// The same e is in the numerator and in the sum. Each of both has 128 roundings of a unit's sum,
// and a unit's factor and addition less than 2 eps, L / 64 in all; a span's merge 2 eps for each of
// its two factors. The rest is division and the oracle's own rounding. S by Cauchy and Schwarz.
double Bound(const Case& v) {
  const double width = v.s.width;
  const double s = LargestNorm(v.args.q, v.s.width) * LargestNorm(v.args.k, v.s.width) *
                   (v.args.scale != 0.0f ? std::abs(v.args.scale) : 1.0 / std::sqrt(width));
  const double e = (width + 8.0) * s / 2.0 + 3.0;
  const size_t seen = v.s.window > 0 ? std::min(v.s.window, v.s.keys) : v.s.keys;
  return (2.0 * e + seen / 16.0 + 140.0) * kEpsF32;
}

void ExpectOracle(core::Exec& exec, Case& v) {
  AttentionRef(v.Want());
  ForEachTarget([&] {
    ASSERT_TRUE(Within(v.Result(exec), v.want, Bound(v)))
        << v.s.queries << " of " << v.s.keys << ", heads " << v.s.heads << "/" << v.s.key_heads
        << ", width " << v.s.width << ", window " << v.s.window << ", causal " << v.s.causal;
  });
}

constexpr size_t kWidths[] = {1, 8, 33, 64, 128};
constexpr size_t kGroups[] = {1, 2, 4};
constexpr size_t kWindows[] = {0, 1, 7, 64, 5000};

TEST(Attention, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(1);
  size_t count = 0;
  for (const size_t length : {1, 2, 3, 31, 33, 65, 1000}) {
    for (const size_t width : kWidths) {
      for (const size_t group : kGroups) {
        for (const size_t window : kWindows) {
          if (length == 1000 && ++count % 7 != 0) continue;
          Case v(rng, {length, length, 4, 4 / group, width, window});
          ExpectOracle(exec, v);
        }
      }
    }
  }
}

TEST(Attention, EqualsTheOracleForTheLastQueriesAndForAllKeys) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(2);
  for (const size_t width : kWidths) {
    for (const size_t group : kGroups) {
      for (const Shape& s :
           {Shape{1, 1400, 4, 4 / group, width}, Shape{2, 8200, 4, 4 / group, width},
            Shape{1, 700, 8, 8 / group, width, 600}, Shape{5, 130, 4, 4 / group, width, 100},
            Shape{70, 600, 4, 4 / group, width}, Shape{9, 70, 4, 4 / group, width, 0, false},
            Shape{40, 3, 4, 4 / group, width, 0, false}}) {
        Case v(rng, s);
        v.args.scale = group == 2 ? -0.3f : 0.0f;
        ExpectOracle(exec, v);
      }
    }
  }
  Case wide(rng, {300, 300, 3, 1, kMaxAttentionWidth});
  ExpectOracle(exec, wide);
}

// Any cut of the work: threads, tiles, queries in pieces against a growing cache.
TEST(Attention, ThreadsTilesAndPiecesHaveTheSameBits) {
  core::ThreadPool one(1), three(3);
  core::Exec exec{one}, exec_three{three};
  ForEachTarget([&] {
    core::Rng rng(3);
    for (const size_t window : {0, 200}) {
      Case v(rng, {1100, 1100, 4, 2, 20, window});
      const std::vector<float> whole = v.Result(exec);
      ASSERT_TRUE(SameBits(v.Result(exec_three), whole));
      for (const internal::AttentionTile& tile : {internal::AttentionTile{6, 128}, {48, 256}}) {
        std::fill(v.y.begin(), v.y.end(), 7.0f);
        internal::AttentionByTiles(exec_three, v.args, tile);
        ASSERT_TRUE(SameBits(v.y, whole)) << tile.rows;
      }
      for (const size_t piece : {1, 7, 250, 999}) {
        std::fill(v.y.begin(), v.y.end(), 7.0f);
        for (size_t t = 0; t < 1100; t += piece) {
          const size_t count = std::min(piece, 1100 - t);
          AttentionArgs a = v.args;
          a.q = a.q.Rows(t, count);
          a.y = a.y.Rows(t, count);
          a.k = a.k.Rows(0, t + count);
          a.v = a.v.Rows(0, t + count);
          Attention(exec_three, a);
        }
        ASSERT_TRUE(SameBits(v.y, whole)) << piece;
      }
    }
  });
}

// Without a mask too, and with blocks of more rows than the least.
TEST(Attention, LargeBlocksHaveTheBitsOfSmallOnes) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(4);
  Case v(rng, {1600, 600, 16, 8, 8, 0, false});
  const std::vector<float> whole = v.Result(exec);
  EXPECT_GT(internal::AttentionCut(v.args).rows, internal::kLeastRows);
  for (size_t t = 0; t < 1600; t += 160) {
    AttentionArgs a = v.args;
    a.q = a.q.Rows(t, 160);
    a.y = a.y.Rows(t, 160);
    EXPECT_EQ(internal::AttentionCut(a).rows, internal::kLeastRows);
    Attention(exec, a);
  }
  EXPECT_TRUE(SameBits(v.y, whole));
}

TEST(Attention, SplitKeysHaveTheBitsOfWholeOnes) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(11);
    Case v(rng, {270, 8200, 4, 2, 20, 8000});
    EXPECT_EQ(internal::AttentionCut(v.args).spans, 1u);
    const std::vector<float> whole = v.Result(exec);
    std::fill(v.y.begin(), v.y.end(), 7.0f);
    for (const auto& [t, count] : {std::pair<size_t, size_t>{0, 1}, {1, 200}, {201, 69}}) {
      AttentionArgs a = v.args;
      a.q = a.q.Rows(t, count);
      a.y = a.y.Rows(t, count);
      a.k = a.k.Rows(0, 8200 - 270 + t + count);
      a.v = a.v.Rows(0, a.k.rows);
      EXPECT_GT(internal::AttentionCut(a).spans, 1u);
      EXPECT_EQ(internal::AttentionCut(a).key_heads, 2u);
      Attention(exec, a);
    }
    ASSERT_TRUE(SameBits(v.y, whole));
  });
}

TEST(Attention, PackedSequencesHaveTheBitsOfSingleOnes) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  // The third sequence has no queries, the fourth nothing, the last one no keys.
  const std::vector<size_t> queries = {0, 1, 131, 131, 131, 140, 143};
  const std::vector<size_t> keys = {0, 600, 730, 760, 760, 769, 769};
  ForEachTarget([&] {
    for (const bool causal : {false, true}) {
      core::Rng rng(5);
      Case v(rng, {143, 769, 4, 2, 33, 0, causal});
      const size_t sequences = causal ? 5 : 6;
      v.args.query_offsets = {queries.data(), sequences + 1};
      v.args.key_offsets = {keys.data(), sequences + 1};
      const std::vector<float> packed = v.Result(exec);
      AttentionRef(v.Want());
      ASSERT_TRUE(Within(packed, v.want, Bound(v)));
      std::fill(v.y.begin(), v.y.end(), 7.0f);
      for (size_t b = 0; b < sequences; ++b) {
        AttentionArgs a = v.args;
        a.query_offsets = a.key_offsets = {};
        a.q = a.q.Rows(queries[b], queries[b + 1] - queries[b]);
        a.y = a.y.Rows(queries[b], a.q.rows);
        a.k = a.k.Rows(keys[b], keys[b + 1] - keys[b]);
        a.v = a.v.Rows(keys[b], a.k.rows);
        Attention(exec, a);
      }
      ASSERT_TRUE(SameBits(v.y, packed));
    }
  });
}

TEST(Attention, MayWriteOverItsQueries) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(6);
  for (const size_t queries : {1, 300}) {
    Case v(rng, {queries, 600, 4, 2, 8});
    Attention(exec, v.args);
    const auto want = testing::Flatten(v.args.y);
    v.args.y = {v.q.data(), v.args.q.rows, v.args.q.cols, v.args.q.stride};
    Attention(exec, v.args);
    EXPECT_TRUE(SameBits(testing::Flatten(v.args.y), want));
  }
}

// What a query doesn't see can't reach it, whatever it is; what it sees does.
TEST(Attention, ValuesThatAreNoNumbersReachOnlyWhoSeesThem) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  constexpr size_t kBad = 140, kWindow = 30, kWidth = 10, kColumn = 3;
  ForEachTarget([&] {
    for (const bool in_keys : {false, true}) {
      for (const float bad : {kNaN, in_keys ? kNaN : kInfinity}) {
        core::Rng rng(7);
        Case v(rng, {200, 200, 4, 2, kWidth, kWindow});
        const std::vector<float> clean = v.Result(exec);
        // Of key head 0, which heads 0 and 1 read.
        (in_keys ? v.k[kBad * v.args.k.stride] : v.v[kBad * v.args.v.stride + kColumn]) = bad;
        const std::vector<float> got = v.Result(exec);
        for (size_t i = 0; i < got.size(); ++i) {
          const size_t t = i / v.args.y.stride, c = i % v.args.y.stride;
          const bool sees = t >= kBad && t < kBad + kWindow && c < 2 * kWidth;
          if (sees && (in_keys || c % kWidth == kColumn)) {
            ASSERT_FALSE(std::isfinite(got[i])) << t << " " << c;
          } else {
            ASSERT_TRUE(SameBits({&got[i], 1}, {&clean[i], 1})) << t << " " << c;
          }
        }
      }
    }
  });
}

TEST(Attention, HugeScoresStayFinite) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(8);
  Case v(rng, {300, 300, 1, 1, 8});
  for (size_t t = 0; t < 300; ++t) {
    for (size_t p = 0; p < 8; ++p) {
      v.q[t * 11 + p] = p == 0 ? 1e15f : 0.0f;
      // Up to 1e30, each apart from the others, and the largest long before the end.
      v.k[t * 9 + p] = p == 0 ? 1e13f * static_cast<float>(t * 37 % 100) : 1.0f;
    }
  }
  for (const size_t t : {0, 1, 130, 299}) v.k[t * 9] = t == 0 ? -1e15f : -kInfinity;
  AttentionRef(v.Want());
  // Weights are 0 or 1, or alike where keys are: no rounding but of sums and quotients.
  ForEachTarget([&] { ASSERT_TRUE(Within(v.Result(exec), v.want, 8.0 * kEpsF32)); });
  // Nothing but -infinity, and +infinity, have no softmax.
  for (const float bad : {-kInfinity, kInfinity}) {
    for (size_t t = 0; t < 300; ++t) v.k[t * 9] = bad;
    ForEachTarget([&] {
      Attention(exec, v.args);
      for (const float y : testing::Flatten(v.args.y)) ASSERT_TRUE(std::isnan(y));
    });
  }
}

TEST(Attention, NothingToDo) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(9);
  Case no_keys(rng, {4, 0, 2, 2, 8, 0, false}), no_queries(rng, {0, 9, 2, 2, 8});
  const std::vector<float> before = no_keys.y;
  EXPECT_TRUE(SameBits(no_keys.Result(exec), before));
  Attention(exec, no_queries.args);
}

TEST(Attention, TilesFollowTheCaches) {
  const auto tile = internal::ChooseAttentionTile(32 << 10, 1 << 20, 64);
  EXPECT_GT(internal::ChooseAttentionTile(64 << 10, 1 << 20, 64).rows, tile.rows);
  EXPECT_LT(internal::ChooseAttentionTile(16 << 10, 1 << 20, 64).rows, tile.rows);
  EXPECT_LT(internal::ChooseAttentionTile(32 << 10, 1 << 18, 64).keys, tile.keys);
  EXPECT_LT(internal::ChooseAttentionTile(32 << 10, 1 << 20, 128).keys, tile.keys);
  for (size_t l1 = 1024; l1 <= 1 << 20; l1 *= 2) {
    for (size_t width = 1; width <= kMaxAttentionWidth; ++width) {
      const auto t = internal::ChooseAttentionTile(l1, 16 * l1, width);
      ASSERT_TRUE(t.rows >= 6 && t.rows <= internal::kMaxTileRows && t.rows % 6 == 0);
      ASSERT_TRUE(t.keys >= internal::kUnitKeys && internal::kSpanKeys % t.keys == 0);
      ASSERT_LE(t.keys * internal::PaddedWidth(width), internal::kMaxTileFloats);
    }
  }
}

TEST(Attention, FewQueriesSplitTheirKeys) {
  core::Rng rng(10);
  Case step(rng, {1, 9000, 8, 4, 64}), prompt(rng, {3000, 3000, 8, 4, 64});
  const internal::AttentionCut split(step.args), whole(prompt.args);
  EXPECT_EQ(split.spans, 18u);
  EXPECT_EQ(split.key_heads, 4u);
  EXPECT_EQ(split.blocks, 1u);
  EXPECT_EQ(whole.spans, 1u);
  EXPECT_EQ(whole.key_heads, 1u);
  // Fewer keys leave fewer spans, of fewer heads each.
  Case shorter(rng, {1, 4000, 8, 4, 64});
  EXPECT_EQ(internal::AttentionCut(shorter.args).key_heads, 2u);
  // Every row once.
  size_t rows = 0;
  for (size_t i = 0; i < whole.blocks; ++i) rows += whole.BlockAt(prompt.args, i).rows;
  EXPECT_EQ(rows, 3000u * 8);
  size_t last = 0;
  for (size_t keys = 0; keys < 5000; keys += 100) {
    EXPECT_GE(AttentionScratch(1000, keys, 8, 64), last);
    last = AttentionScratch(1000, keys, 8, 64);
  }
}

}  // namespace
}  // namespace hognose::kernels
