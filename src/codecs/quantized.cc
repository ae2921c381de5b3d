#include "codecs/quantized.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "codecs/decode.h"
#include "codecs/float16.h"

namespace hognose::codecs {
namespace {

struct Range {
  int low, high;
};
constexpr Range kInt8Range = {-127, 127};
constexpr Range kInt4Range = {-8, 7};

int Code(float value, float scale, Range range) {
  if (scale == 0.0f) return 0;
  // Clamped before it becomes an integer: a tiny scale may be rounded down.
  const float code = std::clamp(value / scale, static_cast<float>(range.low) - 1.0f,
                                static_cast<float>(range.high) + 1.0f);
  return std::clamp(static_cast<int>(std::nearbyint(code)), range.low, range.high);
}

double SquaredError(std::span<const float> group, float scale, Range range) {
  double sum = 0.0;
  for (const float value : group) {
    const double error = value - static_cast<double>(Code(value, scale, range)) * scale;
    sum += error * error;
  }
  return sum;
}

// The scale, rounded to bf16, with the smallest squared error of a few candidates.
core::BFloat16 BestScale(std::span<const float> group, Range range) {
  float extreme = 0.0f;  // the value of the largest magnitude, with its sign
  for (const float value : group) {
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  }
  // Divisors of the extreme value; INT4 has one code more below zero, so a negative scale may fit
  // better.
  static constexpr std::array<float, 1> kInt8Divisors = {127.0f};
  static constexpr std::array<float, 12> kInt4Divisors = {-8.0f, -8.5f, -7.7f, -7.4f, -7.0f, -6.6f,
                                                          7.0f,  7.5f,  7.3f,  6.7f,  6.3f,  8.0f};
  const std::span<const float> divisors = range.high == kInt8Range.high
                                              ? std::span<const float>(kInt8Divisors)
                                              : std::span<const float>(kInt4Divisors);
  core::BFloat16 best = {0};
  double best_error = SquaredError(group, 0.0f, range);
  for (const float divisor : divisors) {
    const core::BFloat16 scale = EncodeBF16(extreme / divisor);
    const float decoded = Decode(scale);
    if (!std::isfinite(decoded)) continue;
    const double error = SquaredError(group, decoded, range);
    if (error >= best_error) continue;
    best = scale;
    best_error = error;
  }
  return best;
}

// Where column `k` of INT4 lies: the byte and whether it has the high four bits.
struct Nibble {
  size_t byte;
  bool high;
};
constexpr Nibble FindNibble(size_t k) { return {k / 32 * 16 + k % 16, k % 32 >= 16}; }

}  // namespace

void EncodeRow(std::span<const float> row, Encoding encoding, size_t group,
               std::span<uint8_t> values, std::span<core::BFloat16> scales) {
  const bool int4 = encoding == Encoding::kInt4;
  const Range range = int4 ? kInt4Range : kInt8Range;
  std::fill(values.begin(), values.end(), int4 ? 0x88 : 0);
  for (size_t g = 0; g < scales.size(); ++g) {
    const size_t begin = std::min(g * group, row.size());
    const auto part = row.subspan(begin, std::min(group, row.size() - begin));
    scales[g] = BestScale(part, range);
    const float scale = Decode(scales[g]);
    for (size_t i = 0; i < part.size(); ++i) {
      const int code = Code(part[i], scale, range);
      if (!int4) {
        values[begin + i] = static_cast<uint8_t>(static_cast<int8_t>(code));
        continue;
      }
      const auto [byte, high] = FindNibble(begin + i);
      const int nibble = code + 8;
      values[byte] = static_cast<uint8_t>(high ? (values[byte] & 0x0F) | (nibble << 4)
                                               : (values[byte] & 0xF0) | nibble);
    }
  }
}

void DecodeColumns(const WeightMatrix& w, size_t row, size_t begin, std::span<float> out) {
  HOGNOSE_DCHECK(row < w.rows && begin + out.size() <= w.cols);
  if (w.encoding == Encoding::kPlain) return Decode(w.values, row * w.cols + begin, out);
  const size_t row_bytes = RowBytes(w.encoding, w.cols, w.group);
  const auto* values = static_cast<const uint8_t*>(w.values.data) + row * row_bytes;
  const core::BFloat16* scales =
      w.scales.As<core::BFloat16>() + row * (PaddedColumns(w.cols, w.group) / w.group);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t k = begin + i;
    int code = 0;
    if (w.encoding == Encoding::kInt8) {
      code = static_cast<int8_t>(values[k]);
    } else {
      const auto [byte, high] = FindNibble(k);
      code = (high ? values[byte] >> 4 : values[byte] & 15) - 8;
    }
    out[i] = static_cast<float>(code) * Decode(scales[k / w.group]);
  }
}

}  // namespace hognose::codecs
