#include "codecs/float16.h"

namespace hognose::codecs {

float Decode(core::Half x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t exponent = (x.bits >> 10) & 31;
  const uint32_t mantissa = x.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

core::Half EncodeF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const auto with_sign = [sign](uint32_t rest) {
    return core::Half{static_cast<uint16_t>(sign | rest)};
  };
  if (magnitude > 0x7F800000u) return with_sign(0x7E00);   // NaN
  if (magnitude >= 0x477FF000u) return with_sign(0x7C00);  // rounds to 2^16 or more
  if (magnitude < 0x38800000u) {
    // Below 2^-14, the smallest normal: units of 2^-24. Adding 0.5 in F32 (whose unit there is
    // 2^-24) rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return with_sign(std::bit_cast<uint32_t>(shifted) - 0x3F000000u);
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1);
  return with_sign((rounded >> 13) - (112u << 10));
}

}  // namespace hognose::codecs
