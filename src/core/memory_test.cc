// Arena and the views that it hands out.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "core/tensor.h"

namespace hognose::core {
namespace {

struct Buffers {
  Mat<float> a;
  Mat<BFloat16> b;
  Vec<double> c;
  Mat<uint8_t> d;

  static Buffers Carve(Arena& arena) {
    return {arena.NewMat<float>(3, 33), arena.NewMat<BFloat16>(5, 1), arena.NewVec<double>(7),
            arena.NewMat<uint8_t>(2, 129)};
  }
};

struct Range {
  uintptr_t begin, end;
};

template <typename T>
Range RowRange(const Mat<T>& m, size_t row) {
  const auto begin = reinterpret_cast<uintptr_t>(m.Row(row));
  return {begin, begin + m.cols * sizeof(T)};
}

TEST(Arena, MeasuresExactlyWhatItCarves) {
  Arena measure;
  const Buffers planned = Buffers::Carve(measure);
  EXPECT_EQ(planned.a.data, nullptr);
  EXPECT_EQ(planned.d.data, nullptr);
  auto arena = Arena::Allocate(measure.used());
  ASSERT_TRUE(arena.ok());
  const Buffers real = Buffers::Carve(*arena);
  EXPECT_EQ(arena->used(), measure.used());
  EXPECT_EQ(real.a.stride, planned.a.stride);
  EXPECT_EQ(real.b.stride, planned.b.stride);
  EXPECT_EQ(real.d.stride, planned.d.stride);
}

TEST(Arena, RowsAreAlignedApartAndZero) {
  auto arena = Arena::Allocate(size_t{1} << 14);
  ASSERT_TRUE(arena.ok());
  const Buffers buffers = Buffers::Carve(*arena);
  std::vector<Range> ranges;
  const auto add = [&](const auto& m) {
    for (size_t row = 0; row < m.rows; ++row) {
      ranges.push_back(RowRange(m, row));
      EXPECT_EQ(ranges.back().begin % Arena::kAlignment, 0u);
      for (size_t i = 0; i < m.cols * sizeof(m.data[0]); ++i) {
        EXPECT_EQ(reinterpret_cast<const uint8_t*>(m.Row(row))[i], 0);
      }
    }
  };
  add(buffers.a);
  add(buffers.b);
  add(Mat<double>{buffers.c.data, 1, buffers.c.size, buffers.c.size});
  add(buffers.d);
  ASSERT_EQ(ranges.size(), 3u + 5u + 1u + 2u);
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].end, ranges[i].begin) << i;
}

TEST(Arena, TakesBackOnRewindAndSurvivesAMove) {
  auto made = Arena::Allocate(1024);
  ASSERT_TRUE(made.ok());
  Arena arena = std::move(*made);
  const auto first = arena.NewVec<float>(10);
  first[9] = 3.0f;
  arena.Rewind();
  EXPECT_EQ(arena.used(), 0u);
  const auto second = arena.NewVec<float>(10);
  EXPECT_EQ(second.data, first.data);
  EXPECT_EQ(second[9], 3.0f) << "Rewind does not clear";
}

TEST(Arena, HandsOutNothingBehindItsEnd) {
  auto arena = Arena::Allocate(Arena::kAlignment);
  ASSERT_TRUE(arena.ok());
  arena->NewVec<float>(32);
  EXPECT_DEATH(arena->NewVec<float>(1), "check failed");
}

TEST(Arena, AllocatesNothingAndHugePages) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5} << 20}) {
    auto arena = Arena::Allocate(bytes);
    ASSERT_TRUE(arena.ok());
    const auto all = arena->NewVec<uint8_t>(bytes);
    if (bytes > 0) all[bytes - 1] = 1;
    EXPECT_GE(arena->used(), bytes);
  }
}

TEST(Arena, RefusesMoreThanThereIs) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2}) {
    const auto arena = Arena::Allocate(bytes);
    ASSERT_FALSE(arena.ok()) << bytes;
    EXPECT_NE(arena.status().message().find("memory: could not allocate"), std::string::npos);
  }
}

TEST(Mat, ColumnsAndRowsAreViewsOfTheSameMemory) {
  std::vector<float> values(20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Mat<float> m = {values.data(), 4, 3, 5};
  const Mat<float> part = m.Rows(1, 2).Cols(1, 2);
  EXPECT_EQ(part.rows, 2u);
  EXPECT_EQ(part.cols, 2u);
  EXPECT_EQ(part.Row(0)[0], 6.0f);
  EXPECT_EQ(part.Row(1)[1], 12.0f);
  const Mat<const float> widened = part;
  EXPECT_EQ(widened.Row(1), part.Row(1));
}

TEST(TensorView, CountsAndPrints) {
  const TensorView scalar{nullptr, DType::kF64, 0, {}};
  EXPECT_EQ(scalar.elements(), 1u);
  EXPECT_EQ(scalar.bytes(), 8u);
  EXPECT_EQ(ToString(scalar), "f64 []");
  const TensorView matrix{nullptr, DType::kBF16, 2, {768, 1536}};
  EXPECT_EQ(ToString(matrix), "bf16 [768, 1536]");
  EXPECT_EQ(matrix.bytes(), 768u * 1536 * 2);
  const TensorView empty{nullptr, DType::kI8, 4, {1, 0, 3, 4}};
  EXPECT_EQ(ToString(empty), "i8 [1, 0, 3, 4]");
  EXPECT_EQ(empty.elements(), 0u);
  // 2^33 elements: counts are 64 bits wide.
  const TensorView large{nullptr, DType::kF32, 3, {1 << 11, 1 << 11, 1 << 11}};
  EXPECT_EQ(large.bytes(), size_t{1} << 35);
}

TEST(TensorView, RefusesAnotherType) {
  const float value = 1.0f;
  const TensorView view{&value, DType::kF32, 1, {1}};
  EXPECT_EQ(*view.As<float>(), 1.0f);
  EXPECT_DEATH((void)view.As<BFloat16>(), "check failed");
}

TEST(DType, TableIsInTheOrderOfTheEnum) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kDTypes[i].dtype), i) << kDTypes[i].name;
  }
  EXPECT_EQ(Name(DType::kF16), "f16");
  EXPECT_EQ(Bytes(DType::kI64), 8u);
}

}  // namespace
}  // namespace hognose::core
