// BF16 and F16: every stored value, and the encoders against rounding done in double precision.
#include "codecs/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "codecs/decode.h"
#include "core/rng.h"

namespace hognose::codecs {
namespace {

// An IEEE-like format: 1 sign bit, then exponent and mantissa bits.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kBF16 = {8, 7}, kF16 = {5, 10};

// The value of `bits` from the definition of the format alone.
double Value(const Format& f, uint16_t bits) {
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << f.exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const int unit = (exponent == 0 ? 1 : exponent) - f.bias() - f.mantissa_bits;
  const int digits = exponent == 0 ? mantissa : mantissa + (1 << f.mantissa_bits);
  return sign * std::ldexp(digits, unit);
}

// The nearest value of the format, ties to the even mantissa, as bits. Exact: a float fits in a
// double with bits to spare, and scaling by powers of two loses nothing.
uint16_t Nearest(const Format& f, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const auto infinity =
      static_cast<uint16_t>(sign | (((1 << f.exponent_bits) - 1) << f.mantissa_bits));
  const double magnitude = std::abs(static_cast<double>(x));
  if (std::isinf(magnitude)) return infinity;
  if (magnitude == 0.0) return sign;
  int exponent = std::max(std::ilogb(magnitude), 1 - f.bias());
  // nearbyint rounds ties to even in the default mode.
  double digits = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  if (digits == std::ldexp(1.0, f.mantissa_bits + 1)) {
    digits /= 2;
    ++exponent;
  }
  if (exponent > f.bias()) return infinity;
  const auto whole = static_cast<int>(digits);
  const bool normal = whole >= 1 << f.mantissa_bits;
  const int field = normal ? exponent + f.bias() : 0;
  const int mantissa = normal ? whole - (1 << f.mantissa_bits) : whole;
  return static_cast<uint16_t>(sign | (field << f.mantissa_bits) | mantissa);
}

template <typename T, typename Encode>
void ExpectAllValuesRoundTrip(const Format& f, const Encode& encode) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float decoded = Decode(T{bits});
    const double want = Value(f, bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(decoded)) << i;
      const uint16_t again = encode(decoded).bits;
      ASSERT_TRUE(std::isnan(Value(f, again))) << i << ": a NaN stays one";
      ASSERT_EQ(again & 0x8000, bits & 0x8000) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(decoded), want) << i;
    ASSERT_EQ(std::signbit(decoded), std::signbit(want)) << i;
    ASSERT_EQ(encode(decoded).bits, bits) << i;
  }
}

TEST(Float16, EveryBF16RoundTrips) { ExpectAllValuesRoundTrip<core::BFloat16>(kBF16, EncodeBF16); }
TEST(Float16, EveryF16RoundTrips) { ExpectAllValuesRoundTrip<core::Half>(kF16, EncodeF16); }

template <typename Encode>
void ExpectNearest(const Format& f, const Encode& encode, uint32_t bits) {
  const auto x = std::bit_cast<float>(bits);
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(Value(f, encode(x).bits))) << std::hex << bits;
    ASSERT_EQ(encode(x).bits >> 15, bits >> 31);
    return;
  }
  ASSERT_EQ(encode(x).bits, Nearest(f, x)) << std::hex << bits << " = " << x;
}

// Every value of the format, every midpoint to the next one, and the floats around both.
template <typename Encode>
void ExpectBoundariesNearest(const Format& f, const Encode& encode) {
  const uint32_t finite = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  for (uint32_t i = 0; i < finite; ++i) {
    const double low = Value(f, static_cast<uint16_t>(i));
    // The midpoint above the largest value is where infinity begins.
    const double high =
        i + 1 < finite ? Value(f, static_cast<uint16_t>(i + 1)) : std::ldexp(1.0, f.bias() + 1);
    for (const double x : {low, (low + high) / 2}) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
      for (const uint32_t near : {bits - 1, bits, bits + 1}) {
        if (near == UINT32_MAX) continue;  // below zero
        ExpectNearest(f, encode, near);
        ExpectNearest(f, encode, near | 0x80000000u);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Float16, BF16RoundsToNearestEvenAtEveryBoundary) {
  ExpectBoundariesNearest(kBF16, EncodeBF16);
}
TEST(Float16, F16RoundsToNearestEvenAtEveryBoundary) { ExpectBoundariesNearest(kF16, EncodeF16); }

// Random bits: every exponent, NaN and infinity among them.
TEST(Float16, RandomFloatsRoundToNearestEven) {
  core::Rng rng(3);
  for (int i = 0; i < 1000000; ++i) {
    const auto bits = static_cast<uint32_t>(rng.Next() >> 32);
    ExpectNearest(kBF16, EncodeBF16, bits);
    ExpectNearest(kF16, EncodeF16, bits);
    if (HasFatalFailure()) return;
  }
}

TEST(Float16, ExtremesAreRight) {
  const uint32_t words[] = {0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000,
                            0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FBFFFFF,
                            0x7FC00000, 0xFFFFFFFF, 0x477FE000, 0x477FEFFF, 0x477FF000,
                            0x387FFFFF, 0x38800000, 0x33000000, 0x33000001, 0x33800000};
  for (const uint32_t word : words) {
    ExpectNearest(kBF16, EncodeBF16, word);
    ExpectNearest(kF16, EncodeF16, word);
  }
  EXPECT_EQ(EncodeF16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(EncodeF16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(EncodeF16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(EncodeF16(0x1p-25f).bits, 0) << "a tie with zero";
  EXPECT_EQ(EncodeBF16(0x1p-133f).bits, 1) << "subnormals are kept";
}

TEST(Decode, TakesAnyRunOfAnyFloatType) {
  const std::vector<float> f32 = {1.0f, -2.5f, 3.0f};
  const std::vector<core::BFloat16> bf16 = {EncodeBF16(1.0f), EncodeBF16(-2.5f), EncodeBF16(3.0f)};
  const std::vector<core::Half> f16 = {EncodeF16(1.0f), EncodeF16(-2.5f), EncodeF16(3.0f)};
  const core::TensorView views[] = {{f32.data(), core::DType::kF32, 1, {3}},
                                    {bf16.data(), core::DType::kBF16, 1, {3}},
                                    {f16.data(), core::DType::kF16, 1, {3}}};
  for (const auto& view : views) {
    std::vector<float> out(2, 9.0f);
    Decode(view, 1, out);
    EXPECT_EQ(out, (std::vector<float>{-2.5f, 3.0f})) << core::ToString(view);
    Decode(view, 3, {});
  }
}

}  // namespace
}  // namespace hognose::codecs
