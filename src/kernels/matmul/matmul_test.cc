#include "kernels/matmul/matmul.h"

#include <cmath>

#include "codecs/float16.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::RandomValues;
using testing::SameBits;

struct Shape {
  size_t m, k, n;
};

constexpr Shape kShapes[] = {{1, 1, 1},   {3, 5, 7},      {6, 16, 64},    {7, 257, 65},
                             {97, 64, 1}, {100, 33, 130}, {13, 600, 129}, {200, 3, 17}};

struct Case {
  std::vector<float> a, b, c, want, scratch;
  MatmulArgs args;

  Case(core::Rng& rng, const Shape& s, bool transpose, bool transpose_b = false)
      : a(RandomValues(rng, (s.m + 2) * (s.k + 2), -1.0, 1.0)),
        b(RandomValues(rng, (s.k + 3) * (s.n + 3), -1.0, 1.0)),
        c(RandomValues(rng, s.m * (s.n + 1), -1.0, 1.0)),
        want(c),
        scratch(MatmulScratch(s.m, s.n)) {
    const size_t rows = transpose ? s.k : s.m, cols = transpose ? s.m : s.k;
    args.a = {a.data(), rows, cols, cols + 1};
    args.transpose_a = transpose;
    args.transpose_b = transpose_b;
    args.b = {b.data(), s.k, s.n, s.n + 3};
    if (transpose_b) args.b = {b.data(), s.n, s.k, s.k + 3};
    args.c = {c.data(), s.m, s.n, s.n + 1};
    args.scratch = {scratch.data(), scratch.size()};
  }
  MatmulArgs Want() {
    MatmulArgs v = args;
    v.c.data = want.data();
    return v;
  }
};

// The bound of the header with |a b| <= 1 is (K + 4) K eps at worst. Errors of random signs grow
// with the root of their number, and the largest c with sqrt(K) / 3: 6 sigma of K roundings of
// partial sums below sqrt(K) each, over the largest value, is below 8 sqrt(K) eps + 4 eps.
double Tolerance(const Shape& s) {
  return (8.0 * std::sqrt(static_cast<double>(s.k)) + 4.0) * kEpsF32;
}

TEST(Matmul, EqualsTheOracleOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const Shape& s : kShapes) {
      for (const bool transpose : {false, true}) {
        for (const bool other : {false, true}) {
          Case v(rng, s, transpose, other);
          v.args.accumulate = !transpose || other;
          MatmulRef(v.Want());
          Matmul(exec, v.args);
          ASSERT_TRUE(CloseToScale(v.c, v.want, Tolerance(s)))
              << s.m << " " << s.k << " " << s.n << " " << transpose << other;
        }
      }
    }
  });
}

TEST(Matmul, TakesWeightsOfEveryStoredType) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  constexpr size_t kGroup = 32;
  // w is [20, 100], once as it is and once transposed.
  for (const bool transpose_b : {false, true})
    ForEachTarget([&] {
      const Shape s = transpose_b ? Shape{9, 100, 20} : Shape{9, 20, 100};
      const size_t rows = 20, cols = 100, padded = codecs::PaddedColumns(cols, kGroup);
      for (const auto encoding : {codecs::Encoding::kInt8, codecs::Encoding::kInt4}) {
        core::Rng rng(3);
        Case v(rng, s, false, transpose_b);
        const size_t row_bytes = codecs::RowBytes(encoding, cols, kGroup);
        std::vector<uint8_t> codes(rows * row_bytes);
        std::vector<core::BFloat16> scales(rows * padded / kGroup);
        for (size_t k = 0; k < rows; ++k) {
          codecs::EncodeRow({v.args.b.Row(k), cols}, encoding, kGroup,
                            std::span(codes).subspan(k * row_bytes, row_bytes),
                            std::span(scales).subspan(k * padded / kGroup, padded / kGroup));
        }
        codecs::WeightMatrix w;
        w.encoding = encoding;
        w.rows = rows;
        w.cols = cols;
        w.group = kGroup;
        const bool int8 = encoding == codecs::Encoding::kInt8;
        w.values = {codes.data(), int8 ? core::DType::kI8 : core::DType::kU8, 2, {rows, row_bytes}};
        w.scales = {scales.data(), core::DType::kBF16, 2, {rows, padded / kGroup}};
        v.args.b = {};
        v.args.w = &w;
        MatmulRef(v.Want());
        Matmul(exec, v.args);
        ASSERT_TRUE(CloseToScale(v.c, v.want, Tolerance(s)));
      }
    });
}

TEST(Matmul, TakesWeightsIn16Bits) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    for (const core::DType dtype : {core::DType::kBF16, core::DType::kF16}) {
      for (const bool transpose_b : {false, true}) {
        core::Rng rng(4);
        const Shape s{11, 270, 37};
        Case v(rng, s, false, transpose_b);
        std::vector<uint16_t> bits(s.k * s.n);
        for (uint16_t& b : bits) {
          const auto value = static_cast<float>(rng.Uniform(-1.0, 1.0));
          b = dtype == core::DType::kBF16 ? codecs::EncodeBF16(value).bits
                                          : codecs::EncodeF16(value).bits;
        }
        const size_t rows = transpose_b ? s.n : s.k, cols = transpose_b ? s.k : s.n;
        const codecs::WeightMatrix w(core::TensorView{bits.data(), dtype, 2, {rows, cols}});
        v.args.b = {};
        v.args.w = &w;
        MatmulRef(v.Want());
        Matmul(exec, v.args);
        ASSERT_TRUE(CloseToScale(v.c, v.want, Tolerance(s))) << transpose_b;
      }
    }
  });
}

// Rounded operands are what the products are computed with: the oracle gets them rounded, and the
// same bound holds. Where nothing is rounded this shows that the flag does nothing.
TEST(Matmul, RoundsOperandsToBf16WhereThatIsFaster) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(5);
    for (const Shape& s : kShapes) {
      for (const bool transpose : {false, true}) {
        Case v(rng, s, transpose);
        v.args.accumulate = transpose;
        v.args.round_bf16 = true;
        std::vector<float> a = v.a, b = v.b;
        for (std::vector<float>* operand : {&a, &b}) {
          for (float& x : *operand) x = codecs::Decode(codecs::EncodeBF16(x));
        }
        MatmulArgs want = v.Want();
        if (UseAvx512Bf16()) want.a.data = a.data(), want.b.data = b.data();
        MatmulRef(want);
        Matmul(exec, v.args);
        ASSERT_TRUE(CloseToScale(v.c, v.want, Tolerance(s)))
            << s.m << " " << s.k << " " << s.n << " " << transpose;
      }
    }
  });
}

TEST(Matmul, RoundsRowsForWeightsInBf16) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(6);
    const Shape s{11, 271, 70};
    Case v(rng, s, false);
    std::vector<core::BFloat16> bits(s.k * s.n);
    for (auto& bit : bits) bit = codecs::EncodeBF16(static_cast<float>(rng.Uniform(-1.0, 1.0)));
    const codecs::WeightMatrix w(core::TensorView{bits.data(), core::DType::kBF16, 2, {s.k, s.n}});
    v.args.b = {};
    v.args.w = &w;
    v.args.round_bf16 = true;
    std::vector<float> a = v.a;
    for (float& x : a) x = codecs::Decode(codecs::EncodeBF16(x));
    MatmulArgs want = v.Want();
    if (UseAvx512Bf16()) want.a.data = a.data();
    MatmulRef(want);
    Matmul(exec, v.args);
    ASSERT_TRUE(CloseToScale(v.c, v.want, Tolerance(s)));
  });
}

TEST(Matmul, ThreadsHaveTheSameBits) {
  ForEachTarget([&] {
    for (const bool transpose : {false, true}) {
      core::Rng rng(2);
      const Shape s{300, 270, 140};
      Case one(rng, s, transpose);
      one.args.round_bf16 = transpose;
      std::vector<float> c = one.c, scratch = one.scratch;
      MatmulArgs other = one.args;
      other.c.data = c.data();
      other.scratch.data = scratch.data();
      core::ThreadPool single(1), three(3);
      core::Exec exec_single{single}, exec_three{three};
      Matmul(exec_single, one.args);
      Matmul(exec_three, other);
      ASSERT_TRUE(SameBits(one.c, c));
    }
  });
}

}  // namespace
}  // namespace hognose::kernels
