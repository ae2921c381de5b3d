#include "kernels/find_nonfinite/find_nonfinite.h"

#include <limits>

#include "codecs/float16.h"
#include "kernels/testing.h"
#include "tests/support/compare.h"

namespace hognose::kernels {
namespace {

constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};

TEST(FindNonFinite, FindsTheFirstOneAnywhere) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  ForEachTarget([&] {
    core::Rng rng(1);
    for (const size_t size : {1, 17, 1000, 600000}) {
      auto f32 = testing::RandomValues(rng, size, -1.0, 1.0);
      f32[0] = std::numeric_limits<float>::max();
      std::vector<core::BFloat16> bf16(size);
      std::vector<core::Half> f16(size);
      for (size_t i = 0; i < size; ++i) {
        bf16[i] = {0x7F7F};  // the largest finite one
        f16[i] = {0xFBFF};
      }
      const core::TensorView views[] = {{f32.data(), core::DType::kF32, 1, {size}},
                                        {bf16.data(), core::DType::kBF16, 1, {size}},
                                        {f16.data(), core::DType::kF16, 1, {size}}};
      for (const auto& view : views) ASSERT_EQ(FindNonFinite(exec, view), std::nullopt) << size;
      size_t at = size - 1;
      for (const float bad : kBad) {
        f32[at] = bad;
        bf16[at] = codecs::EncodeBF16(bad);
        f16[at] = codecs::EncodeF16(bad);
        for (const auto& view : views) {
          ASSERT_EQ(FindNonFinite(exec, view), at) << size;
          ASSERT_EQ(FindNonFiniteRef(view), at) << size;
        }
        at /= 2;
      }
    }
  });
}

TEST(FindNonFinite, FindsTheFirstOfManyTensors) {
  core::ThreadPool pool(2);
  core::Exec exec{pool};
  const std::vector<int64_t> ints(3, -1);
  std::vector<std::vector<float>> values;
  std::vector<core::TensorView> views;
  for (const size_t size : {5, 300000, 0, 262144, 700000, 1}) values.emplace_back(size, 1.0f);
  for (const auto& v : values) {
    views.push_back({v.data(), core::DType::kF32, 1, {v.size()}});
    views.push_back({ints.data(), core::DType::kI64, 1, {3}});
  }
  EXPECT_EQ(FindNonFinite(exec, views), std::nullopt);
  EXPECT_EQ(FindNonFinite(exec, std::span<const core::TensorView>()), std::nullopt);
  for (size_t i = values.size(); i-- > 0;) {
    for (const size_t at : {values[i].size() - 1, values[i].size() / 2, size_t{0}}) {
      if (values[i].empty()) continue;
      values[i][at] = kBad[at % 3];
      ASSERT_EQ(FindNonFinite(exec, views), (NonFinite{2 * i, at}));
    }
  }
}

TEST(FindNonFinite, IntegersAreFinite) {
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const std::vector<int64_t> ints(3, -1);
  EXPECT_EQ(FindNonFinite(exec, {ints.data(), core::DType::kI64, 1, {3}}), std::nullopt);
}

}  // namespace
}  // namespace hognose::kernels
