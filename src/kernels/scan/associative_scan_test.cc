#include "kernels/scan/associative_scan.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "core/rng.h"

namespace hognose::kernels {
namespace {

// 2 by 2 matrices of integers modulo 2^32: exact, associative, and they don't commute.
using Matrix = std::array<uint32_t, 4>;

constexpr Matrix kIdentity = {1, 0, 0, 1};

// `later` after `earlier`.
Matrix Compose(const Matrix& earlier, const Matrix& later) {
  const Matrix &l = later, &e = earlier;
  return {l[0] * e[0] + l[1] * e[2], l[0] * e[1] + l[1] * e[3], l[2] * e[0] + l[3] * e[2],
          l[2] * e[1] + l[3] * e[3]};
}

std::vector<Matrix> RandomMatrices(size_t size) {
  core::Rng rng(size);
  std::vector<Matrix> m(size);
  for (auto& matrix : m) {
    for (auto& v : matrix) v = static_cast<uint32_t>(rng.Next());
  }
  return m;
}

TEST(AssociativeScan, FollowsTheDefinition) {
  const std::vector<Matrix> in = RandomMatrices(3);
  const Matrix start = {1, 2, 3, 4};
  const Matrix h0 = Compose(start, in[0]), h1 = Compose(h0, in[1]), h2 = Compose(h1, in[2]);
  std::vector<Matrix> out(3);
  EXPECT_EQ(AssociativeScan<Matrix>(in, out, start, Compose), h2);
  EXPECT_EQ(out, (std::vector<Matrix>{h0, h1, h2}));
  EXPECT_EQ(AssociativeScan<Matrix>(in, out, start, Compose, ScanKind::kExclusive), h2);
  EXPECT_EQ(out, (std::vector<Matrix>{start, h0, h1}));
  EXPECT_EQ(AssociativeScan<Matrix>({}, {}, start, Compose), start);
}

TEST(AssociativeScan, InParallelIsTheSameForAnyLength) {
  for (const size_t size : {0, 1, 2, 1024, 1025, 2048, 3000, 100000}) {
    const std::vector<Matrix> in = RandomMatrices(size);
    std::vector<Matrix> totals(AssociativeScanSegments(size));
    for (const ScanKind kind : {ScanKind::kInclusive, ScanKind::kExclusive}) {
      std::vector<Matrix> want(size);
      const Matrix last = AssociativeScan<Matrix>(in, want, kIdentity, Compose, kind);
      for (const size_t threads : {1, 2, 3}) {
        core::ThreadPool pool(threads);
        core::Exec exec{pool};
        std::vector<Matrix> out = in;  // in place
        EXPECT_EQ(AssociativeScanParallel<Matrix>(exec, out, out, kIdentity, Compose, totals, kind),
                  last);
        EXPECT_EQ(out, want) << size;
      }
    }
  }
}

// Rounding too: one split for any number of threads.
TEST(AssociativeScan, AnyThreadCountHasTheSameBits) {
  core::Rng rng(1);
  std::vector<float> in(5000);
  for (float& v : in) v = static_cast<float>(rng.Uniform(-1.0, 1.0));
  std::vector<float> totals(AssociativeScanSegments(in.size()));
  const auto run = [&](size_t threads) {
    core::ThreadPool pool(threads);
    core::Exec exec{pool};
    std::vector<float> out(in.size());
    AssociativeScanParallel<float>(
        exec, in, out, 0.0f, [](float a, float b) { return a + b; }, totals);
    return out;
  };
  EXPECT_EQ(run(1), run(2));
  EXPECT_EQ(run(1), run(3));
}

}  // namespace
}  // namespace hognose::kernels
