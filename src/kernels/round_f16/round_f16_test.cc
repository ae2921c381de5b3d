#include "kernels/round_f16/round_f16.h"

#include <bit>
#include <limits>

#include "codecs/float16.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

// Values of every exponent, the neighbours of F16's limits and ties.
std::vector<float> Values() {
  std::vector<float> values = {0.0f,       -0.0f,
                               1.0f,       65504.0f,
                               65519.0f,   65520.0f,
                               65536.0f,   131072.0f,
                               1e30f,      0x1p-14f,
                               0x1p-24f,   0x1p-25f,
                               0x1.8p-25f, std::numeric_limits<float>::infinity()};
  core::Rng rng(1);
  for (int exponent = -30; exponent < 20; ++exponent) {
    for (int i = 0; i < 40; ++i) {
      const auto scale = std::ldexp(1.0, exponent);
      values.push_back(static_cast<float>(rng.Uniform(1.0, 2.0) * scale));
      // A tie: eleven bits and a half.
      values.push_back(
          static_cast<float>((1024.5 + static_cast<double>(rng.Below(1023))) / 1024.0 * scale));
    }
  }
  const size_t half = values.size();
  for (size_t i = 0; i < half; ++i) values.push_back(-values[i]);
  return values;
}

TEST(RoundF16, EqualsTheCodecOnEveryTarget) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  const std::vector<float> x = Values();
  ForEachTarget([&] {
    for (const size_t cols : {size_t{1}, size_t{7}, size_t{33}}) {
      const size_t rows = x.size() / cols;
      std::vector<float> y(x);
      RoundF16(exec, {{x.data(), rows, cols, cols}, {y.data(), rows, cols, cols}});
      for (size_t i = 0; i < rows * cols; ++i) {
        const float want = codecs::Decode(codecs::EncodeF16(x[i]));
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(want)) << x[i];
      }
    }
  });
}

TEST(RoundF16, KeepsNaN) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  ForEachTarget([&] {
    float v = std::numeric_limits<float>::quiet_NaN();
    RoundF16(exec, {{&v, 1, 1, 1}, {&v, 1, 1, 1}});
    ASSERT_TRUE(std::isnan(v));
  });
}

}  // namespace
}  // namespace hognose::kernels
