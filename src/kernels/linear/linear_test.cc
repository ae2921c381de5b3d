#include "kernels/linear/linear.h"

#include <cstring>

#include "codecs/float16.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using codecs::Encoding;
using core::BFloat16;
using core::DType;
using core::Half;
using testing::CloseToScale;
using testing::Flatten;
using testing::kEpsBF16;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

// How a matrix is stored: plain by dtype, or quantised by group.
struct Kind {
  Encoding encoding;
  DType dtype;
  size_t group;
  std::string name() const {
    if (encoding == Encoding::kPlain) return std::string(core::Name(dtype));
    return (encoding == Encoding::kInt8 ? "int8/" : "int4/") + std::to_string(group);
  }
};
constexpr Kind kKinds[] = {
    {Encoding::kPlain, DType::kF32, 0}, {Encoding::kPlain, DType::kBF16, 0},
    {Encoding::kPlain, DType::kF16, 0}, {Encoding::kInt8, DType::kI8, 32},
    {Encoding::kInt8, DType::kI8, 64},  {Encoding::kInt8, DType::kI8, 128},
    {Encoding::kInt4, DType::kU8, 32},  {Encoding::kInt4, DType::kU8, 64},
    {Encoding::kInt4, DType::kU8, 128},
};

// Random weights of a kind; the oracle reads the same stored values.
struct Weights {
  std::vector<float> f32;
  std::vector<uint8_t> bytes;
  std::vector<BFloat16> scales;
  codecs::WeightMatrix view;

  Weights(core::Rng& rng, const Kind& kind, size_t rows, size_t cols)
      : f32(RandomValues(rng, rows * cols, -1.0, 1.0)) {
    if (kind.encoding == Encoding::kPlain) {
      bytes.resize(f32.size() * core::Bytes(kind.dtype));
      for (size_t i = 0; i < f32.size(); ++i) Store(kind.dtype, i);
      view = core::TensorView{bytes.data(), kind.dtype, 2, {rows, cols}};
      return;
    }
    const size_t row_bytes = codecs::RowBytes(kind.encoding, cols, kind.group);
    const size_t groups = codecs::PaddedColumns(cols, kind.group) / kind.group;
    bytes.resize(rows * row_bytes);
    scales.resize(rows * groups);
    for (size_t m = 0; m < rows; ++m) {
      codecs::EncodeRow({&f32[m * cols], cols}, kind.encoding, kind.group,
                        {&bytes[m * row_bytes], row_bytes}, {&scales[m * groups], groups});
    }
    view.encoding = kind.encoding;
    view.rows = rows;
    view.cols = cols;
    view.group = kind.group;
    view.values = {bytes.data(), kind.dtype, 2, {rows, row_bytes}};
    view.scales = {scales.data(), DType::kBF16, 2, {rows, groups}};
  }
  void Store(DType dtype, size_t i) {
    const BFloat16 bf16 = codecs::EncodeBF16(f32[i]);
    const Half f16 = codecs::EncodeF16(f32[i]);
    const void* from = &f32[i];
    if (dtype == DType::kBF16) from = &bf16;
    if (dtype == DType::kF16) from = &f16;
    std::memcpy(&bytes[i * core::Bytes(dtype)], from, core::Bytes(dtype));
  }
};

// Views of x and y are rows inside wider buffers, so that a kernel that ignores strides fails.
struct Case {
  std::vector<float> x, y, want, bias;
  std::vector<uint8_t> scratch;
  Weights w;
  LinearArgs args;

  Case(core::Rng& rng, const Kind& kind, size_t l, size_t k, size_t m, bool accumulate)
      : x(RandomValues(rng, l * (k + 3), -1.0, 1.0)),
        y(RandomValues(rng, l * (m + 5), -1.0, 1.0)),
        want(y),
        bias(RandomValues(rng, m, -1.0, 1.0)),
        scratch(LinearScratch(l, k)),
        w(rng, kind, m, k) {
    args.x = {x.data(), l, k, k + 3};
    args.w = w.view;
    if (!accumulate) args.bias = {bias.data(), m};
    args.y = {y.data(), l, m, m + 5};
    args.accumulate = accumulate;
    args.scratch = {scratch.data(), scratch.size()};
  }
  LinearArgs Want() {
    LinearArgs a = args;
    a.y.data = want.data();
    return a;
  }
};

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

// The same row gives the same bits alone, in any batch, and with any number of threads.
TEST(Linear, RowsHaveTheSameBitsInAnyBatchAndThreadCount) {
  ForEachTarget([&] {
    for (const Kind& kind : kKinds) {
      for (const bool exact : {true, false}) {
        core::Rng rng(3);
        Case c(rng, kind, 23, 70, 90, false);
        c.args.activations = PickActivations(c.args.w, exact);
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
        ASSERT_TRUE(SameBits(Flatten(c.args.y), together)) << kind.name();
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
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    for (const Kind& kind : kKinds) {
      if (kind.encoding == Encoding::kPlain) continue;
      for (const size_t k : {48, 640, 8200}) {
        core::Rng rng(4);
        constexpr size_t kRows = 18, kM = 7;
        Case c(rng, kind, kRows, k, kM, false);
        c.args.activations = Activations::kInt16;
        Linear(exec, c.args);
        const auto together = Flatten(c.args.y);
        for (size_t l = 0; l < kRows; ++l) {
          LinearArgs row = c.args;
          row.x = c.args.x.Rows(l, 1);
          row.y = c.args.y.Rows(l, 1);
          std::fill_n(row.y.Row(0), kM, 0.0f);
          Linear(exec, row);
        }
        ASSERT_TRUE(SameBits(Flatten(c.args.y), together)) << kind.name() << " " << k;
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
