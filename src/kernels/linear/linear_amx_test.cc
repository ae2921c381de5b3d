// The tile products with imitated tiles, so that packing, tails and stores are tested on processors
// without AMX. Where there is one, linear_test has the real ones.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "codecs/float16.h"
#include "core/cpu.h"
#include "core/rng.h"
#include "hwy/highway.h"
#include "kernels/linear/linear_amx_imitation.h"
#include "tests/support/compare.h"

#if defined(__x86_64__)

HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4700, ignored "-Wuninitialized")
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wmaybe-uninitialized")
#include <immintrin.h>
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")
#include "kernels/linear/linear_amx-inl.h"
HWY_POP_ATTRIBUTES

namespace hognose::kernels::internal {
namespace {

struct Case {
  std::vector<float> x, y, want, bias;
  std::vector<core::BFloat16> w;
  std::vector<uint8_t> scratch;
  LinearArgs args;

  // Activations that bf16 holds exactly, so that only the sums differ from the oracle's.
  Case(core::Rng& rng, size_t l, size_t k, size_t m, bool accumulate)
      : x(l * (k + 3)), y(l * (m + 5)), bias(m), w(m * k), scratch(LinearScratch(l, k)) {
    for (auto& v : x) {
      v = codecs::Decode(codecs::EncodeBF16(static_cast<float>(rng.Uniform(-1.0, 1.0))));
    }
    for (auto& v : y) v = static_cast<float>(rng.Uniform(-1.0, 1.0));
    for (auto& v : bias) v = static_cast<float>(rng.Uniform(-1.0, 1.0));
    for (auto& v : w) v = codecs::EncodeBF16(static_cast<float>(rng.Uniform(-1.0, 1.0)));
    want = y;
    args.x = {x.data(), l, k, k + 3};
    args.w = core::TensorView{w.data(), core::DType::kBF16, 2, {m, k}};
    if (!accumulate) args.bias = {bias.data(), m};
    args.y = {y.data(), l, m, m + 5};
    args.accumulate = accumulate;
    args.activations = Activations::kBF16;
    args.scratch = {scratch.data(), scratch.size()};
  }
};

bool Lacking() { return !core::Cpu().avx512_bf16; }

TEST(LinearAmx, EqualsTheOracle) {
  if (Lacking()) GTEST_SKIP() << "the code around the tiles needs AVX-512 BF16";
  core::Rng rng(1);
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  for (const size_t l : {1, 2, 5, 15, 16, 17, 31, 33, 48, 70}) {
    for (const size_t k : {1, 31, 32, 33, 48, 100}) {
      for (const size_t m : {16, 17, 31, 32, 33, 47, 80, 130}) {
        Case c(rng, l, k, m, (l + m) % 2 == 0);
        LinearArgs oracle = c.args;
        oracle.y.data = c.want.data();
        LinearRef(oracle);
        AmxProduct<ImitatedTiles>(exec, c.args);
        // k terms of size <= 1 against an output of order sqrt(k), as in linear_test.
        ASSERT_TRUE(testing::CloseToScale(c.y, c.want, (k + 4.0) * testing::kEpsF32))
            << l << " " << k << " " << m;
      }
    }
  }
}

TEST(LinearAmx, RowsHaveTheSameBitsInAnyBatchAndThreadCount) {
  if (Lacking()) GTEST_SKIP() << "the code around the tiles needs AVX-512 BF16";
  constexpr size_t kRows = 53, kM = 90;
  core::Rng rng(2);
  Case c(rng, kRows, 70, kM, false);
  core::ThreadPool pool(3), one(1);
  core::Exec exec{pool}, exec_one{one};
  AmxProduct<ImitatedTiles>(exec, c.args);
  const std::vector<float> together = c.y;
  for (size_t begin = 0, count = 1; begin < kRows; begin += count, count += 4) {
    count = std::min(count, kRows - begin);
    LinearArgs part = c.args;
    part.x = c.args.x.Rows(begin, count);
    part.y = c.args.y.Rows(begin, count);
    for (size_t i = 0; i < count; ++i) std::fill_n(part.y.Row(i), kM, 0.0f);
    AmxProduct<ImitatedTiles>(exec_one, part);
  }
  ASSERT_TRUE(testing::SameBits(c.y, together));
}

}  // namespace
}  // namespace hognose::kernels::internal
HWY_DIAGNOSTICS(pop)

#endif
