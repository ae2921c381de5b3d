#include "kernels/linear/linear.h"

#include <cmath>

#include "kernels/linear/linear_testing.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/testing.h"

namespace hognose::kernels {
namespace {

using hognose::testing::CloseToScale;
using hognose::testing::kEpsBF16;
using hognose::testing::kEpsF32;
using testing::Case;
using testing::Kind;
using testing::kKinds;

TEST(Linear, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const Kind& kind : kKinds) {
      for (const size_t l : {1, 2, 3, 7, 13}) {
        for (const size_t k : {1, 15, 16, 33, 48, 100}) {
          for (const size_t m : {1, 3, 4, 5, 130}) {
            Case c(rng, kind, l, k, m, (l + m) % 2 == 0);
            LinearRef(c.Want());
            Linear(exec, c.args);
            // Whole buffers: what lies between the rows must be untouched. k terms of size <= 1
            // against an output of order sqrt(k): k eps over the scale bounds all.
            ASSERT_TRUE(CloseToScale(c.y, c.want, (k + 4.0) * kEpsF32))
                << kind.name() << " " << l << " " << k << " " << m;
          }
        }
      }
    }
  });
}

TEST(Linear, RoundedActivationsStayWithinTheirUnit) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(2);
    for (const Kind& kind : kKinds) {
      for (const size_t l : {1, 5, 6, 19}) {
        for (const size_t k : {1, 31, 32, 33, 48, 200}) {
          Case c(rng, kind, l, k, 37, false);
          LinearRef(c.Want());
          c.args.activations = PickActivations(c.args.w, false);
          Linear(exec, c.args);
          // Each x is off by half a unit: of bf16, or of 2^-15 of the row's largest (at most 1). In
          // the worst case k times that, over a scale of at least 1/4; f32's own error comes on
          // top.
          const double unit = c.args.activations == Activations::kBF16    ? kEpsBF16
                              : c.args.activations == Activations::kInt16 ? 0x1p-15
                                                                          : 0.0;
          ASSERT_TRUE(CloseToScale(c.y, c.want, 2.0 * unit * std::sqrt(k) + (k + 4.0) * kEpsF32))
              << kind.name() << " " << l << " " << k;
        }
      }
    }
  });
}

TEST(Linear, RowsHaveTheSameBitsInAnyBatchAndThreadCount) {
  ForEachTarget([&] {
    for (const Kind& kind : kKinds) {
      for (const bool exact : {true, false}) {
        core::Rng rng(3);
        Case c(rng, kind, 23, 70, 90, false);
        c.args.activations = PickActivations(c.args.w, exact);
        ASSERT_TRUE(testing::SameBitsInAnyCompany(c, 1, Linear)) << kind.name();
      }
    }
  });
}

// Codes are unpacked where enough rows share the work and a tile of them fits the stack; either way
// the integers are the same.
TEST(Linear, UnpackingCodesChangesNoBit) {
  EXPECT_FALSE(internal::UnpackCodes(15, 768));
  EXPECT_TRUE(internal::UnpackCodes(16, 768));
  EXPECT_TRUE(internal::UnpackCodes(16, internal::kMaxUnpacked));
  EXPECT_FALSE(internal::UnpackCodes(16, internal::kMaxUnpacked + 1));
  ForEachTarget([&] {
    for (const Kind& kind : kKinds) {
      if (kind.encoding == codecs::Encoding::kPlain) continue;
      for (const size_t k : {48, 640, 8200}) {
        core::Rng rng(4);
        constexpr size_t kRows = 18, kM = 7;
        Case c(rng, kind, kRows, k, kM, false);
        c.args.activations = Activations::kInt16;
        ASSERT_TRUE(testing::SameBitsInAnyCompany(c, 0, Linear)) << kind.name() << " " << k;
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
