// BF16 and F16, scalar: the definition that vector code in kernels must equal bit for bit.
//
// BF16: sign 1, exponent 8, mantissa 7: the upper half of an F32.
// F16:  sign 1, exponent 5, mantissa 10 (IEEE 754 binary16).
// Encoding rounds to nearest, ties to even; overflow becomes infinity; a NaN stays a (quiet) NaN.
// BF16's encoder flushes nothing: subnormals are kept.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace hognose::codecs {

inline float Decode(float x) { return x; }
inline float Decode(core::BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
float Decode(core::Half x);

inline core::BFloat16 EncodeBF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40)};  // a NaN must not round to infinity
  }
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16)};
}
core::Half EncodeF16(float x);

}  // namespace hognose::codecs
