#include "kernels/selective_scan/selective_scan.h"

#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

struct Case {
  std::vector<float> dt, x, z, bc, a, d_skip, state, y, want, state_want;
  SelectiveScanArgs args;

  Case(core::Rng& rng, size_t l, size_t e, size_t n)
      : dt(RandomValues(rng, l * (e + 1), -7.0, 1.0)),
        x(RandomValues(rng, l * (e + 2), -1.0, 1.0)),
        z(RandomValues(rng, l * (e + 3), -4.0, 4.0)),
        bc(RandomValues(rng, l * (2 * n + 5), -1.0, 1.0)),
        a(RandomValues(rng, n * (e + 4), -16.0, -0.01)),
        d_skip(RandomValues(rng, e, -1.0, 1.0)),
        state(RandomValues(rng, n * e, -1.0, 1.0)),
        y(l * (e + 1), 7.0f),
        want(y),
        state_want(state) {
    dt[0] = 30.0f;  // above softplus' linear limit
    args.dt = {dt.data(), l, e, e + 1};
    args.x = {x.data(), l, e, e + 2};
    args.z = {z.data(), l, e, e + 3};
    args.b = {bc.data(), l, n, 2 * n + 5};
    args.c = {bc.data() + n, l, n, 2 * n + 5};
    args.a = {a.data(), n, e, e + 4};
    args.d_skip = {d_skip.data(), e};
    args.state = {state.data(), n, e, e};
    args.y = {y.data(), l, e, e + 1};
  }
  SelectiveScanArgs Want() {
    SelectiveScanArgs v = args;
    v.y.data = want.data();
    v.state.data = state_want.data();
    return v;
  }
};

// A value is a sum of terms up to l steps old, each with error (4 age + 8) eps, then a sum over n.
// The terms have both signs, so their sizes may exceed the result's; the factor 4 covers random
// signs.
double Tolerance(size_t l, size_t n) { return 4.0 * (4.0 * l + n + 16.0) * kEpsF32; }

TEST(SelectiveScan, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t l : {1, 2, 7, 40}) {
      for (const size_t e : {1, 15, 17, 130}) {
        for (const size_t n : {1, 5, 16, 33, 70}) {
          Case v(rng, l, e, n);
          SelectiveScanRef(v.Want());
          SelectiveScan(exec, v.args);
          ASSERT_TRUE(CloseToScale(v.y, v.want, Tolerance(l, n))) << l << " " << e << " " << n;
          ASSERT_TRUE(CloseToScale(v.state, v.state_want, Tolerance(l, n)))
              << l << " " << e << " " << n;
        }
      }
    }
  });
}

TEST(SelectiveScan, SplitsOfTimeAndThreadsHaveTheSameBits) {
  ForEachTarget([&] {
    core::Rng rng(2);
    const Case start(rng, 23, 140, 40);
    Case whole = start;
    core::ThreadPool three(3);
    core::Exec exec_three{three};
    SelectiveScanArgs all = start.args;
    all.y.data = whole.y.data();
    all.state.data = whole.state.data();
    SelectiveScan(exec_three, all);
    core::ThreadPool one(1);
    core::Exec exec_one{one};
    for (const size_t piece : {1, 2, 7, 22}) {
      Case parts = start;
      for (size_t t = 0; t < 23; t += piece) {
        const size_t count = std::min(piece, 23 - t);
        SelectiveScanArgs v = start.args;
        v.dt = v.dt.Rows(t, count);
        v.x = v.x.Rows(t, count);
        v.z = v.z.Rows(t, count);
        v.b = v.b.Rows(t, count);
        v.c = v.c.Rows(t, count);
        v.y.data = parts.y.data();
        v.y = v.y.Rows(t, count);
        v.state.data = parts.state.data();
        SelectiveScan(exec_one, v);
      }
      ASSERT_TRUE(SameBits(parts.y, whole.y)) << piece;
      ASSERT_TRUE(SameBits(parts.state, whole.state)) << piece;
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
