// The tile products over INT8 and INT4 weights with imitated tiles, so that packing, unpacking,
// scales, tails and stores are tested on processors without AMX. Where there is one, linear_test
// has the real ones.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/avx512.h"
#include "kernels/linear/linear_amx_imitation.h"
#include "kernels/linear/linear_testing.h"

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(HOGNOSE_AVX512_BF16)
#include "kernels/linear/linear_amx_int-inl.h"
HWY_POP_ATTRIBUTES

namespace hognose::kernels::internal {
namespace {

using hognose::testing::CloseToScale;
using hognose::testing::kEpsF32;
using kernels::testing::Kind;

struct Case : kernels::testing::Case {
  Case(core::Rng& rng, const Kind& kind, size_t l, size_t k, size_t m, bool accumulate)
      : kernels::testing::Case(rng, kind, l, k, m, accumulate) {
    args.activations = Activations::kInt16;
  }
};

// As linear_test derives it for 16-bit activations: each x is off by half of 2^-15 of the row's
// largest (at most 1), in the worst case k times that over a scale of at least 1/4; f32's own
// error comes on top.
double Tolerance(size_t k) {
  return 2.0 * 0x1p-15 * std::sqrt(static_cast<double>(k)) +
         (static_cast<double>(k) + 4.0) * kEpsF32;
}

std::vector<Kind> Quantised() {
  std::vector<Kind> kinds;
  for (const Kind& kind : kernels::testing::kKinds) {
    if (kind.encoding != codecs::Encoding::kPlain) kinds.push_back(kind);
  }
  return kinds;
}

class LinearAmxInt : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (Lacking()) GTEST_SKIP() << "the code around the tiles needs AVX-512";
  }
  core::ThreadPool pool_{2};
  core::Exec exec_{pool_};
};

TEST_P(LinearAmxInt, EqualsTheOracle) {
  core::Rng rng(1);
  for (const size_t l : {1, 2, 5, 8, 9, 16, 17, 33, 70}) {
    for (const size_t k : {1, 31, 33, 48, 100, 200}) {
      for (const size_t m : {16, 17, 31, 32, 33, 47, 80, 130}) {
        Case c(rng, GetParam(), l, k, m, (l + m) % 2 == 0);
        LinearRef(c.Want());
        AmxIntProduct<ImitatedTiles>(exec_, c.args);
        // Whole buffers: what lies between the rows must be untouched.
        ASSERT_TRUE(CloseToScale(c.y, c.want, Tolerance(k))) << l << " " << k << " " << m;
      }
    }
  }
}

// More columns than one chunk, and more rows of x than share unpacked codes.
TEST_P(LinearAmxInt, EqualsTheOracleOverManyColumnsAndRows) {
  core::Rng rng(2);
  const size_t many = (AmxInt::kBlocks + 1) * kAmxRows + 3;
  const size_t sizes[][3] = {{1, 1100, 40}, {6, 1025, 33}, {20, 1537, 48}, {many, 600, 49}};
  for (const auto& [l, k, m] : sizes) {
    Case c(rng, GetParam(), l, k, m, l % 2 == 0);
    LinearRef(c.Want());
    AmxIntProduct<ImitatedTiles>(exec_, c.args);
    ASSERT_TRUE(CloseToScale(c.y, c.want, Tolerance(k))) << l << " " << k << " " << m;
  }
}

// Activations that 16 bits hold exactly leave nothing but f32's own error, so that a fault in the
// low plane of bytes shows.
TEST_P(LinearAmxInt, ExactActivationsLeaveOnlyTheErrorOfF32) {
  core::Rng rng(3);
  for (const size_t l : {3, 40}) {
    constexpr size_t kK = 300;
    Case c(rng, GetParam(), l, kK, 50, true);
    for (size_t i = 0; i < c.x.size(); ++i) c.x[i] = std::nearbyint(c.x[i] * 32766.0f);
    for (size_t i = 0; i < l; ++i) c.x[i * (kK + 3) + i] = i % 2 == 0 ? 32767.0f : -32767.0f;
    LinearRef(c.Want());
    AmxIntProduct<ImitatedTiles>(exec_, c.args);
    ASSERT_TRUE(CloseToScale(c.y, c.want, (kK + 4.0) * kEpsF32)) << l;
  }
}

TEST_P(LinearAmxInt, RowsHaveTheSameBitsInAnyBatchAndThreadCount) {
  core::Rng rng(4);
  Case c(rng, GetParam(), 53, 700, 90, false);
  ASSERT_TRUE(kernels::testing::SameBitsInAnyCompany(c, 2, AmxIntProduct<ImitatedTiles>));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LinearAmxInt, ::testing::ValuesIn(Quantised()),
                         [](const auto& kind) {
                           std::string name = kind.param.name();
                           name[name.find('/')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace hognose::kernels::internal

#endif
