#include "codecs/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "codecs/float16.h"
#include "core/rng.h"

namespace hognose::codecs {
namespace {

struct Row {
  std::vector<uint8_t> values;
  std::vector<core::BFloat16> scales;
  std::vector<float> decoded;

  Row(const std::vector<float>& row, Encoding encoding, size_t group)
      : values(RowBytes(encoding, row.size(), group), 0xFF),
        scales(PaddedColumns(row.size(), group) / group, core::BFloat16{0x7FC0}),
        decoded(row.size()) {
    EncodeRow(row, encoding, group, values, scales);
    WeightMatrix w;
    w.encoding = encoding;
    w.rows = 1;
    w.cols = row.size();
    w.group = group;
    w.values = {values.data(), core::DType::kU8, 2, {1, values.size()}};
    w.scales = {scales.data(), core::DType::kBF16, 2, {1, scales.size()}};
    DecodeRow(w, 0, decoded);
  }
};

constexpr Encoding kEncodings[] = {Encoding::kInt8, Encoding::kInt4};
constexpr size_t kGroups[] = {32, 64, 128};

TEST(Quantized, EveryWidthStaysWithinItsGroupsStep) {
  core::Rng rng(1);
  for (const Encoding encoding : kEncodings) {
    for (const size_t group : kGroups) {
      for (const size_t cols : {1, 31, 33, 48, 64, 127, 129, 1856, 2688}) {
        std::vector<float> row(cols);
        for (auto& v : row) v = static_cast<float>(rng.Uniform(-2.0, 2.0));
        const Row r(row, encoding, group);
        for (size_t g = 0; g * group < cols; ++g) {
          float largest = 0.0f;
          const size_t end = std::min(cols, (g + 1) * group);
          for (size_t k = g * group; k < end; ++k) largest = std::max(largest, std::abs(row[k]));
          // Half a step inside the range. The end that has one code less is clipped by at most half
          // a step more than that, and a scale rounded to bf16 moves the ends by 2^-9 of the
          // largest.
          const double step = std::abs(Decode(r.scales[g]));
          for (size_t k = g * group; k < end; ++k) {
            ASSERT_LE(std::abs(r.decoded[k] - row[k]), 1.5 * step + largest * 0x1p-8)
                << cols << " " << group << " " << k;
          }
          // Neither is the step wider than the range asks for.
          const double codes = encoding == Encoding::kInt8 ? 127.0 : 6.0;
          ASSERT_LE(step, largest / codes * (1 + 0x1p-8)) << cols << " " << group;
        }
      }
    }
  }
}

TEST(Quantized, ValuesOnTheGridAreExact) {
  for (const Encoding encoding : kEncodings) {
    const int low = encoding == Encoding::kInt8 ? -127 : -8;
    const int high = encoding == Encoding::kInt8 ? 127 : 7;
    std::vector<float> row(256);
    for (size_t k = 0; k < row.size(); ++k) {
      row[k] = 0.25f * static_cast<float>(low + static_cast<int>(k) % (high - low + 1));
    }
    // Every group of 128 holds the extreme values only for INT4; for INT8 put them in.
    for (size_t k = 0; k < row.size(); k += 32) row[k] = 0.25f * static_cast<float>(low);
    for (const size_t group : kGroups) EXPECT_EQ(Row(row, encoding, group).decoded, row) << group;
  }
}

TEST(Quantized, ZerosStayZeroAndPaddingHasCodeZero) {
  for (const Encoding encoding : kEncodings) {
    for (const size_t group : kGroups) {
      std::vector<float> row(33, 0.0f);
      row[32] = 3.0f;
      const Row r(row, encoding, group);
      for (size_t k = 0; k < 32; ++k) EXPECT_EQ(r.decoded[k], 0.0f);
      EXPECT_NEAR(r.decoded[32], 3.0f, 3.0f * 0x1p-8);
      const Row padded(std::vector<float>(1, 1.0f), encoding, group);
      for (size_t i = 1; i < padded.values.size(); ++i) {
        EXPECT_EQ(padded.values[i], encoding == Encoding::kInt8 ? 0 : 0x88);
      }
    }
  }
}

TEST(Quantized, TinyAndHugeGroupsAreFinite) {
  for (const Encoding encoding : kEncodings) {
    for (const float size : {1e-42f, 1e-38f, 1e30f, 3e38f}) {
      const Row r({size, -size, size / 2, 0.0f}, encoding, 32);
      for (const float v : r.decoded) EXPECT_TRUE(std::isfinite(v)) << size;
    }
  }
}

}  // namespace
}  // namespace hognose::codecs
