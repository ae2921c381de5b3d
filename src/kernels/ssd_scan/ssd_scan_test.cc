#include "kernels/ssd_scan/ssd_scan.h"

#include <limits>

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  size_t l, h, p, g, n;
};

struct Case {
  std::vector<float> x, bc, dt, dt_bias, a, d_skip, state, y, want, state_want, scratch;
  SsdScanArgs args;

  Case(core::Rng& rng, const Shape& s)
      : x(RandomValues(rng, s.l * (s.h * s.p + 2), -1.0, 1.0)),
        bc(RandomValues(rng, s.l * (2 * s.g * s.n + 5), -1.0, 1.0)),
        dt(RandomValues(rng, s.l * (s.h + 1), -4.0, 1.0)),
        dt_bias(RandomValues(rng, s.h, -3.0, 1.0)),
        a(RandomValues(rng, s.h, -16.0, -0.05)),
        d_skip(RandomValues(rng, s.h * s.p, -1.0, 1.0)),
        state(RandomValues(rng, s.h * s.n * s.p, -1.0, 1.0)),
        y(s.l * (s.h * s.p + 1), 7.0f),
        want(y),
        state_want(state),
        scratch(s.l * 2 * s.h) {
    dt[0] = 40.0f;  // above softplus' linear limit
    const size_t width = s.h * s.p;
    args.x = {x.data(), s.l, width, width + 2};
    args.b = {bc.data(), s.l, s.g * s.n, 2 * s.g * s.n + 5};
    args.c = {bc.data() + s.g * s.n, s.l, s.g * s.n, 2 * s.g * s.n + 5};
    args.dt = {dt.data(), s.l, s.h, s.h + 1};
    args.dt_bias = {dt_bias.data(), s.h};
    args.a = {a.data(), s.h};
    args.d_skip = {d_skip.data(), width};
    args.dt_max = kInfinity;
    args.groups = s.g;
    args.state = {state.data(), s.h * s.n, s.p, s.p};
    args.y = {y.data(), s.l, width, width + 1};
    args.scratch = {scratch.data(), s.l, 2 * s.h, 2 * s.h};
  }
  SsdScanArgs Want() {
    SsdScanArgs v = args;
    v.y.data = want.data();
    v.state.data = state_want.data();
    return v;
  }
};

// As in selective_scan: terms up to l steps old, then a sum over n, with random signs.
double Tolerance(const Shape& s) { return 4.0 * (2.0 * s.l + s.n + 16.0) * kEpsF32; }

constexpr Shape kShapes[] = {{1, 1, 1, 1, 1},   {3, 2, 3, 1, 5},    {9, 4, 16, 2, 16},
                             {17, 6, 17, 2, 7}, {5, 3, 33, 3, 20},  {12, 2, 64, 1, 128},
                             {4, 8, 65, 4, 9},  {2, 1, 32, 1, 300}, {30, 16, 1, 4, 3}};

TEST(SsdScan, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const Shape& s : kShapes) {
      for (const bool limits : {false, true}) {
        Case v(rng, s);
        if (limits) v.args.dt_min = 0.05f, v.args.dt_max = 0.5f;
        SsdScanRef(v.Want());
        SsdScan(exec, v.args);
        ASSERT_TRUE(CloseToScale(v.y, v.want, Tolerance(s))) << s.l << " " << s.h << " " << s.p;
        ASSERT_TRUE(CloseToScale(v.state, v.state_want, Tolerance(s)))
            << s.l << " " << s.h << " " << s.p;
      }
    }
  });
}

// Chunks: sums of up to 64 products of three rounded factors (c b, decay, dt), and the state's sum
// over N; a decay's exponent has an error of one eps of itself, and exp(-v) v is at most 1/e. With
// random signs, over the largest value:
double ChunkedTolerance(const Shape& s) { return 4.0 * (2.0 * 64.0 + s.n + 32.0) * kEpsF32; }

TEST(SsdScan, ChunksEqualTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (Shape s : kShapes) {
      if (s.n > kMaxChunkedStates) continue;
      for (const size_t steps : {s.l, size_t{63}, size_t{64}, size_t{65}, size_t{200}}) {
        s.l = steps;
        Case v(rng, s);
        v.args.dt_max = steps % 2 == 0 ? 0.5f : kInfinity;
        SsdScanRef(v.Want());
        std::vector<float> scratch(SsdScanChunkedScratch(s.l, s.h, s.g, s.n));
        SsdScanChunked(exec, v.args, {scratch.data(), scratch.size()});
        ASSERT_TRUE(CloseToScale(v.y, v.want, ChunkedTolerance(s))) << s.l << " " << s.p;
        ASSERT_TRUE(CloseToScale(v.state, v.state_want, ChunkedTolerance(s))) << s.l << " " << s.p;
      }
    }
  });
}

// A step that forgets everything, then steps that forget little: a sum in one float would have lost
// what little that is.
TEST(SsdScan, ChunksKeepSmallDecaysBehindLargeOnes) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  core::Rng rng(4);
  const Shape s{64, 1, 8, 1, 4};
  Case v(rng, s);
  v.a[0] = -1000.0f;
  for (size_t t = 0; t < s.l; ++t) v.dt[t * (s.h + 1)] = t == 0 ? 3.0f : -11.0f;
  v.dt_bias[0] = 0.0f;
  SsdScanRef(v.Want());
  std::vector<float> scratch(SsdScanChunkedScratch(s.l, s.h, s.g, s.n));
  SsdScanChunked(exec, v.args, {scratch.data(), scratch.size()});
  EXPECT_TRUE(CloseToScale(v.y, v.want, 64.0 * kEpsF32));
}

TEST(SsdScan, SplitsOfTimeAndThreadsHaveTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(2);
    const Case start(rng, {23, 6, 40, 2, 19});
    Case whole = start;
    core::ThreadPool three(3);
    core::Exec exec_three{three};
    SsdScanArgs all = start.args;
    all.y.data = whole.y.data();
    all.state.data = whole.state.data();
    all.scratch.data = whole.scratch.data();
    SsdScan(exec_three, all);
    core::ThreadPool one(1);
    core::Exec exec_one{one};
    for (const size_t piece : {1, 2, 7, 22}) {
      Case parts = start;
      for (size_t t = 0; t < 23; t += piece) {
        const size_t count = std::min(piece, 23 - t);
        SsdScanArgs v = start.args;
        v.x = v.x.Rows(t, count);
        v.b = v.b.Rows(t, count);
        v.c = v.c.Rows(t, count);
        v.dt = v.dt.Rows(t, count);
        v.y.data = parts.y.data();
        v.y = v.y.Rows(t, count);
        v.state.data = parts.state.data();
        v.scratch.data = parts.scratch.data();
        v.scratch.rows = count;
        SsdScan(exec_one, v);
      }
      ASSERT_TRUE(SameBits(parts.y, whole.y)) << piece;
      ASSERT_TRUE(SameBits(parts.state, whole.state)) << piece;
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
