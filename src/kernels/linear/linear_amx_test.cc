// The tile products with imitated tiles, so that packing, tails and stores are tested on processors
// without AMX. Where there is one, linear_test has the real ones.
#include <gtest/gtest.h>

#include "codecs/float16.h"
#include "core/rng.h"
#include "kernels/avx512.h"
#include "kernels/linear/linear_amx_imitation.h"
#include "kernels/linear/linear_testing.h"

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(HOGNOSE_AVX512_BF16)
#include "kernels/linear/linear_amx-inl.h"
HWY_POP_ATTRIBUTES

namespace hognose::kernels::internal {
namespace {

// Activations that bf16 holds exactly, so that only the sums differ from the oracle's.
struct Case : kernels::testing::Case {
  Case(core::Rng& rng, size_t l, size_t k, size_t m, bool accumulate)
      : kernels::testing::Case(rng, {codecs::Encoding::kPlain, core::DType::kBF16, 0}, l, k, m,
                               accumulate) {
    for (auto& v : x) v = codecs::Decode(codecs::EncodeBF16(v));
    args.activations = Activations::kBF16;
  }
};

TEST(LinearAmx, EqualsTheOracle) {
  if (Lacking()) GTEST_SKIP() << "the code around the tiles needs AVX-512 BF16";
  core::Rng rng(1);
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  for (const size_t l : {1, 2, 5, 15, 16, 17, 31, 33, 48, 70}) {
    for (const size_t k : {1, 31, 32, 33, 48, 100}) {
      for (const size_t m : {16, 17, 31, 32, 33, 47, 80, 130}) {
        Case c(rng, l, k, m, (l + m) % 2 == 0);
        LinearRef(c.Want());
        AmxProduct<ImitatedTiles>(exec, c.args);
        // k terms of size <= 1 against an output of order sqrt(k), as in linear_test.
        ASSERT_TRUE(
            hognose::testing::CloseToScale(c.y, c.want, (k + 4.0) * hognose::testing::kEpsF32))
            << l << " " << k << " " << m;
      }
    }
  }
}

TEST(LinearAmx, RowsHaveTheSameBitsInAnyBatchAndThreadCount) {
  if (Lacking()) GTEST_SKIP() << "the code around the tiles needs AVX-512 BF16";
  core::Rng rng(2);
  Case c(rng, 53, 70, 90, false);
  ASSERT_TRUE(kernels::testing::SameBitsInAnyCompany(c, 4, AmxProduct<ImitatedTiles>));
}

}  // namespace
}  // namespace hognose::kernels::internal

#endif
