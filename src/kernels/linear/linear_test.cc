#include "kernels/linear/linear.h"

#include "codecs/float16.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using core::BFloat16;
using core::DType;
using core::Half;
using testing::CloseToScale;
using testing::Flatten;
using testing::kEpsBF16;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

// Weights of any stored type, exactly the values that the oracle reads.
struct Weights {
  std::vector<float> f32;
  std::vector<BFloat16> bf16;
  std::vector<Half> f16;
  core::TensorView view;

  Weights(core::Rng& rng, DType dtype, size_t rows, size_t cols)
      : f32(RandomValues(rng, rows * cols, -1.0, 1.0)) {
    for (const float v : f32) {
      bf16.push_back(codecs::EncodeBF16(v));
      f16.push_back(codecs::EncodeF16(v));
    }
    const void* data = f32.data();
    if (dtype == DType::kBF16) data = bf16.data();
    if (dtype == DType::kF16) data = f16.data();
    view = {data, dtype, 2, {rows, cols}};
  }
};

// Views of x and y are rows inside wider buffers, so that a kernel that ignores strides fails.
struct Case {
  std::vector<float> x, y, want, bias;
  std::vector<BFloat16> scratch;
  Weights w;
  LinearArgs args;

  Case(core::Rng& rng, DType dtype, size_t l, size_t k, size_t m, bool accumulate)
      : x(RandomValues(rng, l * (k + 3), -1.0, 1.0)),
        y(RandomValues(rng, l * (m + 5), -1.0, 1.0)),
        want(y),
        bias(RandomValues(rng, m, -1.0, 1.0)),
        scratch(LinearScratch(l, k)),
        w(rng, dtype, m, k) {
    args.x = {x.data(), l, k, k + 3};
    args.w = w.view;
    if (!accumulate) args.bias = {bias.data(), m};
    args.y = {y.data(), l, m, m + 5};
    args.accumulate = accumulate;
    args.x_bf16 = {scratch.data(), scratch.size()};
  }
  LinearArgs Want() {
    LinearArgs a = args;
    a.y.data = want.data();
    return a;
  }
};

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST(Linear, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const DType dtype : kTypes) {
      for (const size_t l : {1, 2, 3, 7, 13}) {
        for (const size_t k : {1, 15, 16, 33, 48, 100}) {
          for (const size_t m : {1, 3, 4, 5, 130}) {
            Case c(rng, dtype, l, k, m, (l + m) % 2 == 0);
            LinearRef(c.Want());
            Linear(exec, c.args);
            // Whole buffers: what lies between the rows must be untouched. k terms of size <= 1
            // against an output of order sqrt(k): k eps over the scale bounds all.
            ASSERT_TRUE(CloseToScale(c.y, c.want, (k + 4.0) * kEpsF32))
                << core::Name(dtype) << " " << l << " " << k << " " << m;
          }
        }
      }
    }
  });
}

TEST(Linear, RoundedActivationsStayWithinBf16) {
  if (PickActivations(DType::kBF16, false) != Activations::kBF16) return;
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  core::Rng rng(2);
  for (const size_t l : {1, 5, 6, 19}) {
    for (const size_t k : {1, 31, 32, 33, 200}) {
      Case c(rng, DType::kBF16, l, k, 37, false);
      LinearRef(c.Want());
      c.args.activations = Activations::kBF16;
      Linear(exec, c.args);
      // Each x is off by half a unit of bf16: k eps/2 in the worst case over a scale of at least
      // 1/4.
      ASSERT_TRUE(CloseToScale(c.y, c.want, 2.0 * kEpsBF16 * std::sqrt(k))) << l << " " << k;
    }
  }
}

// The same row gives the same bits alone, in any batch, and with any number of threads.
TEST(Linear, RowsHaveTheSameBitsInAnyBatchAndThreadCount) {
  ForEachTarget([&] {
    for (const DType dtype : kTypes) {
      for (const bool exact : {true, false}) {
        core::Rng rng(3);
        Case c(rng, dtype, 23, 70, 90, false);
        c.args.activations = PickActivations(dtype, exact);
        core::ThreadPool pool(3);
        core::Exec exec{pool};
        Linear(exec, c.args);
        const auto together = Flatten(c.args.y);
        core::ThreadPool one(1);
        core::Exec exec_one{one};
        for (size_t begin = 0, count = 1; begin < 23; begin += count, ++count) {
          count = std::min(count, 23 - begin);
          LinearArgs part = c.args;
          part.x = c.args.x.Rows(begin, count);
          part.y = c.args.y.Rows(begin, count);
          for (size_t i = 0; i < count; ++i) std::fill_n(part.y.Row(i), 90, 0.0f);
          Linear(exec_one, part);
        }
        ASSERT_TRUE(SameBits(Flatten(c.args.y), together)) << core::Name(dtype);
      }
    }
  });
}

TEST(Target, UnknownNameIsAUsageErrorThatListsTheKnown) {
  const auto status = ForceTarget("AVX9");
  EXPECT_EQ(status.code(), core::StatusCode::kUsage);
  EXPECT_NE(status.message().find("AVX9"), std::string::npos);
  EXPECT_NE(status.message().find("SCALAR"), std::string::npos);
}

}  // namespace
}  // namespace hognose::kernels
