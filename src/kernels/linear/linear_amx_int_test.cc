// The tile products over INT8 and INT4 weights with imitated tiles, so that packing, unpacking,
// scales, tails and stores are tested on processors without AMX. Where there is one, linear_test
// has the real ones.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

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
#include "kernels/linear/linear_amx_int-inl.h"
HWY_POP_ATTRIBUTES

namespace hognose::kernels::internal {
namespace {

using codecs::Encoding;
using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;

struct Kind {
  Encoding encoding;
  size_t group;
  std::string name() const {
    return (encoding == Encoding::kInt8 ? "int8/" : "int4/") + std::to_string(group);
  }
};
constexpr Kind kKinds[] = {
    {Encoding::kInt8, 32}, {Encoding::kInt8, 64}, {Encoding::kInt8, 128},
    {Encoding::kInt4, 32}, {Encoding::kInt4, 64}, {Encoding::kInt4, 128},
};

// Views of x and y are rows inside wider buffers, so that a kernel that ignores strides fails.
struct Case {
  std::vector<float> x, y, want, bias;
  std::vector<uint8_t> codes, scratch;
  std::vector<core::BFloat16> scales;
  LinearArgs args;

  Case(core::Rng& rng, const Kind& kind, size_t l, size_t k, size_t m, bool accumulate)
      : x(RandomValues(rng, l * (k + 3), -1.0, 1.0)),
        y(RandomValues(rng, l * (m + 5), -1.0, 1.0)),
        want(y),
        bias(RandomValues(rng, m, -1.0, 1.0)),
        scratch(LinearScratch(l, k)) {
    const size_t row_bytes = codecs::RowBytes(kind.encoding, k, kind.group);
    const size_t groups = codecs::PaddedColumns(k, kind.group) / kind.group;
    codes.resize(m * row_bytes);
    scales.resize(m * groups);
    for (size_t i = 0; i < m; ++i) {
      codecs::EncodeRow(RandomValues(rng, k, -1.0, 1.0), kind.encoding, kind.group,
                        {&codes[i * row_bytes], row_bytes}, {&scales[i * groups], groups});
    }
    const bool int8 = kind.encoding == Encoding::kInt8;
    args.w.encoding = kind.encoding;
    args.w.rows = m;
    args.w.cols = k;
    args.w.group = kind.group;
    args.w.values = {codes.data(), int8 ? core::DType::kI8 : core::DType::kU8, 2, {m, row_bytes}};
    args.w.scales = {scales.data(), core::DType::kBF16, 2, {m, groups}};
    args.x = {x.data(), l, k, k + 3};
    if (!accumulate) args.bias = {bias.data(), m};
    args.y = {y.data(), l, m, m + 5};
    args.accumulate = accumulate;
    args.activations = Activations::kInt16;
    args.scratch = {scratch.data(), scratch.size()};
  }
  LinearArgs Want() {
    LinearArgs a = args;
    a.y.data = want.data();
    return a;
  }
};

// As linear_test derives it for 16-bit activations: each x is off by half of 2^-15 of the row's
// largest (at most 1), in the worst case k times that over a scale of at least 1/4; f32's own
// error comes on top.
double Tolerance(size_t k) {
  return 2.0 * 0x1p-15 * std::sqrt(static_cast<double>(k)) +
         (static_cast<double>(k) + 4.0) * kEpsF32;
}

bool Lacking() { return !core::Cpu().avx512_bf16; }

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
  constexpr size_t kRows = 53, kM = 90;
  core::Rng rng(4);
  Case c(rng, GetParam(), kRows, 700, kM, false);
  core::ThreadPool pool(3), one(1);
  core::Exec exec{pool}, exec_one{one};
  AmxIntProduct<ImitatedTiles>(exec, c.args);
  const std::vector<float> together = c.y;
  for (size_t begin = 0, count = 1; begin < kRows; begin += count, count += 2) {
    count = std::min(count, kRows - begin);
    LinearArgs part = c.args;
    part.x = c.args.x.Rows(begin, count);
    part.y = c.args.y.Rows(begin, count);
    for (size_t i = 0; i < count; ++i) std::fill_n(part.y.Row(i), kM, 0.0f);
    AmxIntProduct<ImitatedTiles>(exec_one, part);
  }
  ASSERT_TRUE(testing::SameBits(c.y, together));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LinearAmxInt, ::testing::ValuesIn(kKinds), [](const auto& kind) {
  std::string name = kind.param.name();
  name[name.find('/')] = '_';
  return name;
});

}  // namespace
}  // namespace hognose::kernels::internal
HWY_DIAGNOSTICS(pop)

#endif
