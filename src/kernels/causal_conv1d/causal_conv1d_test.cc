#include "kernels/causal_conv1d/causal_conv1d.h"

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

struct Case {
  std::vector<float> x, w, bias, window, y, want, window_want;
  CausalConv1dArgs args;

  Case(core::Rng& rng, size_t l, size_t c, size_t k, bool with_bias)
      : x(RandomValues(rng, l * (c + 3), -1.0, 1.0)),
        w(RandomValues(rng, k * c, -1.0, 1.0)),
        bias(RandomValues(rng, c, -1.0, 1.0)),
        window(RandomValues(rng, k * c, -1.0, 1.0)),
        y(l * (c + 1), 7.0f),
        want(y),
        window_want(window) {
    args.x = {x.data(), l, c, c + 3};
    args.w = {w.data(), k, c, c};
    if (with_bias) args.bias = {bias.data(), c};
    args.window = {window.data(), k, c, c};
    args.y = {y.data(), l, c, c + 1};
  }
  CausalConv1dArgs Want() {
    CausalConv1dArgs a = args;
    a.y.data = want.data();
    a.window.data = window_want.data();
    return a;
  }
};

// Lengths around the width: shorter than the window, equal, longer.
TEST(CausalConv1d, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t l : {1, 2, 3, 4, 5, 11}) {
      for (const size_t c : {1, 15, 17, 33, 300}) {
        for (const size_t k : {1, 2, 3, 4, 5, 8}) {
          Case v(rng, l, c, k, l % 2 == 0);
          CausalConv1dRef(v.Want());
          CausalConv1d(exec, v.args);
          ASSERT_TRUE(CloseToScale(v.y, v.want, (k + 16.0) * kEpsF32)) << l << " " << c << " " << k;
          ASSERT_TRUE(SameBits(v.window, v.window_want)) << l << " " << c << " " << k;
        }
      }
    }
  });
}

TEST(CausalConv1d, SplitsOfTimeHaveTheSameBits) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    const Case start(rng, 9, 37, 4, true);
    for (size_t first = 1; first < 9; ++first) {
      Case whole = start, parts = start;
      whole.args = whole.Want();
      whole.args.x.data = whole.x.data();
      CausalConv1d(exec, whole.args);
      CausalConv1dArgs a = parts.args;
      a.window.data = parts.window.data();
      a.y.data = parts.y.data();
      for (const auto& [begin, count] :
           {std::pair{size_t{0}, first}, std::pair{first, 9 - first}}) {
        CausalConv1dArgs piece = a;
        piece.x = a.x.Rows(begin, count);
        piece.y = a.y.Rows(begin, count);
        CausalConv1d(exec, piece);
      }
      ASSERT_TRUE(SameBits(parts.y, whole.want)) << first;
      ASSERT_TRUE(SameBits(parts.window, whole.window_want)) << first;
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
