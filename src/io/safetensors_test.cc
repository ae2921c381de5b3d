#include "io/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "io/test_util.h"

namespace hognose::io {
namespace {

using core::DType;
using core::TensorView;

std::string MakeFile(std::string_view header, size_t body_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (size_t i = 0; i < body_bytes; ++i) file += static_cast<char>(i);
  return file;
}

core::Result<SafetensorsFile> Parse(const std::string& file) {
  return SafetensorsFile::Parse({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                                "x.safetensors");
}
core::Status Error(std::string_view header, size_t body_bytes) {
  return Parse(MakeFile(header, body_bytes)).status();
}
std::string Tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"w": {{"dtype": "{}", "shape": {}, "data_offsets": {}}}}})", dtype, shape,
                     offsets);
}
std::string Two(std::string_view first, std::string_view second) {
  return fmt::format(R"({{"a": {{"dtype": "U8", "shape": [4], "data_offsets": {}}},)"
                     R"( "b": {{"dtype": "U8", "shape": [4], "data_offsets": {}}}}})",
                     first, second);
}

TEST(SafetensorsTest, ReadsEveryType) {
  std::string header = "{";
  size_t offset = 0;
  for (const auto& info : core::kDTypes) {
    header += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": [2, 3], "data_offsets": [{}, {}]}})",
                          offset == 0 ? "" : ",", info.name, info.safetensors_name, offset,
                          offset + 6 * info.bytes);
    offset += 6 * info.bytes;
  }
  const std::string file = MakeFile(header + "}", offset);
  const auto parsed = Parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->tensors().size(), core::kDTypes.size());
  offset = 0;
  for (const auto& info : core::kDTypes) {
    const TensorView& tensor = parsed->tensors().find(info.name)->second;
    EXPECT_EQ(core::ToString(tensor), fmt::format("{} [2, 3]", info.name));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % info.bytes, 0u);
    EXPECT_EQ(*static_cast<const uint8_t*>(tensor.data), static_cast<uint8_t>(offset));
    offset += 6 * info.bytes;
  }
}

TEST(SafetensorsTest, TakesScalarsEmptyTensorsAndMetadata) {
  const std::string header =
      R"({"__metadata__": {"format": "pt", "é": ""},)"
      R"("s": {"dtype": "U8", "shape": [], "data_offsets": [0, 1], "x": 1},)"
      R"("z": {"dtype": "F32", "shape": [0, 5], "data_offsets": [1, 1]},)"
      R"("t": {"dtype": "U8", "shape": [1,2,1,1], "data_offsets": [1, 3]}} )";
  const std::string file = MakeFile(header, 3);
  const auto parsed = Parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->tensors().find("s")->second.elements(), 1u);
  EXPECT_EQ(parsed->tensors().find("z")->second.bytes(), 0u);
  EXPECT_EQ(parsed->metadata(), (Metadata{{"format", "pt"}, {"é", ""}}));
  EXPECT_TRUE(Error("{}", 0).ok());
  EXPECT_TRUE(Error(R"({"__metadata__": null})", 0).ok());
}

TEST(SafetensorsTest, RefusesBrokenHeaders) {
  EXPECT_TRUE(FailsWith(Parse("").status(), {"x.safetensors: header: got a file of 0 bytes"}));
  EXPECT_TRUE(
      FailsWith(Parse("1234567").status(), {"header: got a file of 7 bytes, want at least"}));
  std::string file = MakeFile("{}", 0);
  file[0] = 3;
  EXPECT_TRUE(FailsWith(Parse(file).status(),
                        {"header: got a length of 3 bytes, want at most the 2", "truncated"}));
  file.replace(0, 8, std::string(8, '\xFF'));
  EXPECT_TRUE(
      FailsWith(Parse(file).status(),
                {"header: got a length of 18446744073709551615 bytes, want at most 100000000"}));
  EXPECT_TRUE(FailsWith(Parse("version https://git-lfs.github.com/spec/v1\noid").status(),
                        {"x.safetensors: got a Git LFS pointer, want the file itself"}));
  EXPECT_TRUE(FailsWith(Error("", 0), {"header: got JSON that doesn't begin with '{'"}));
  EXPECT_TRUE(FailsWith(Error("[]", 0), {"header: got JSON that doesn't begin with '{'"}));
  EXPECT_TRUE(FailsWith(Error(" {}", 0), {"header: got JSON that doesn't begin with '{'"}));
  EXPECT_TRUE(FailsWith(Error("{", 0), {"x.safetensors: header: line 1 column 2: got the end"}));
  EXPECT_TRUE(FailsWith(Error("{}x", 0), {"x.safetensors: header: line 1 column 3: got 'x'"}));
  EXPECT_TRUE(FailsWith(Error(R"({"w": 1, "w": 2})", 0), {"header", "got the key \"w\" twice"}));
  EXPECT_TRUE(FailsWith(Error(R"({"__metadata__": []})", 0),
                        {"__metadata__: got an array, want an object"}));
  EXPECT_TRUE(FailsWith(Error(R"({"__metadata__": {"a": 1}})", 0),
                        {"__metadata__: a: got an integer, want a string"}));
}

TEST(SafetensorsTest, RefusesMissingAndWrongFields) {
  EXPECT_TRUE(
      FailsWith(Error(R"({"w": 5})", 0), {"x.safetensors: w: got an integer, want an object"}));
  EXPECT_TRUE(FailsWith(Error(R"({"w": {}})", 0), {"w: dtype: got nothing, want a string"}));
  EXPECT_TRUE(FailsWith(Error(R"({"w": {"dtype": 1}})", 0), {"w: dtype: got an integer"}));
  EXPECT_TRUE(
      FailsWith(Error(R"({"w": {"dtype": "U8"}})", 0), {"w: shape: got nothing, want an array"}));
  EXPECT_TRUE(FailsWith(Error(R"({"w": {"dtype": "U8", "shape": []}})", 0),
                        {"w: data_offsets: got nothing, want an array"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("F8_E4M3", "[1]", "[0, 1]"), 1),
                        {"w: dtype: got F8_E4M3, want one of F64, F32, BF16, F16, I64"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("f32", "[1]", "[0, 4]"), 4), {"w: dtype: got f32"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("U8", "4", "[0, 4]"), 4), {"w: shape: got an integer"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("U8", "[-1]", "[0, 4]"), 4),
                        {"w: shape: got [-1], want integers from 0 on"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("U8", "[1.5]", "[0, 4]"), 4), {"w: shape: got [1.5]"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("U8", "[4.0]", "[0, 4]"), 4), {"w: shape: got [4.0]"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("U8", "[true]", "[0, 4]"), 4), {"w: shape: got [true]"}));
  EXPECT_TRUE(
      FailsWith(Error(Tensor("U8", "[18446744073709551615]", "[0, 4]"), 4), {"w: shape: got"}));
  EXPECT_TRUE(FailsWith(Error(Tensor("U8", "[1,1,1,2,2]", "[0, 4]"), 4),
                        {"w: shape: got 5 dimensions, want at most 4"}));
}

TEST(SafetensorsTest, RefusesWrongOffsets) {
  const auto error = [](std::string_view offsets) {
    return Error(Tensor("U8", "[4]", offsets), 4);
  };
  EXPECT_TRUE(FailsWith(error("[0]"), {"w: data_offsets: got 1 numbers, want 2"}));
  EXPECT_TRUE(FailsWith(error("[0, 2, 4]"), {"w: data_offsets: got 3 numbers, want 2"}));
  EXPECT_TRUE(FailsWith(error("{}"), {"w: data_offsets: got an object, want an array"}));
  EXPECT_TRUE(
      FailsWith(error("[-4, 0]"), {"w: data_offsets: got [-4,0], want integers from 0 on"}));
  EXPECT_TRUE(FailsWith(error("[0, 4.5]"), {"w: data_offsets: got [0,4.5]"}));
  EXPECT_TRUE(FailsWith(error("[0, 1e3]"), {"w: data_offsets: got"}));
  EXPECT_TRUE(FailsWith(error("[0, null]"), {"w: data_offsets: got [0,null]"}));
  EXPECT_TRUE(FailsWith(error("[4, 0]"),
                        {"w: data_offsets: got bytes [4, 0), want a range inside the body's 4"}));
  EXPECT_TRUE(FailsWith(error("[1, 5]"), {"got bytes [1, 5), want a range inside the body's 4"}));
  EXPECT_TRUE(
      FailsWith(error("[9223372036854775803, 9223372036854775807]"), {"inside the body's 4"}));
  EXPECT_TRUE(FailsWith(error("[0, 3]"), {"w: got 3 bytes of data, want 4 for u8 [4]"}));
}

TEST(SafetensorsTest, RefusesShapesThatOverflow) {
  for (const char* shape :
       {"[4294967296, 4294967296]", "[9223372036854775807, 3]", "[4611686018427387904]",
        "[0, 9223372036854775807, 9223372036854775807]", "[4294967296, 4294967296, 0]",
        "[65536, 65536, 65536, 65536]"}) {
    EXPECT_TRUE(FailsWith(Error(Tensor("F32", shape, "[0, 0]"), 0),
                          {"w: shape: got f32 [", "want one whose byte count fits in 64 bits"}))
        << shape;
  }
}

TEST(SafetensorsTest, EveryByteBelongsToOneTensor) {
  EXPECT_TRUE(Error(Two("[0, 4]", "[4, 8]"), 8).ok());
  EXPECT_TRUE(Error(Two("[4, 8]", "[0, 4]"), 8).ok());
  EXPECT_TRUE(FailsWith(Error(Two("[0, 4]", "[3, 7]"), 7),
                        {"b: data_offsets: got bytes [3, 7), want none of those of a [0, 4)"}));
  EXPECT_TRUE(FailsWith(Error(Two("[0, 4]", "[0, 4]"), 4), {"got bytes [0, 4), want none of"}));
  EXPECT_TRUE(FailsWith(Error(Two("[0, 4]", "[5, 9]"), 9),
                        {"b: data_offsets: got bytes [4, 5) that belong to no tensor", "no hole"}));
  EXPECT_TRUE(FailsWith(Error(Two("[1, 5]", "[5, 9]"), 9), {"a: data_offsets: got bytes [0, 1)"}));
  EXPECT_TRUE(FailsWith(Error(Two("[0, 4]", "[4, 8]"), 9),
                        {"x.safetensors: body: got 9 bytes, want 8, the end of the last tensor"}));
  EXPECT_TRUE(FailsWith(Error("{}", 1), {"body: got 1 bytes, want 0"}));
  // An empty tensor in the middle of another one overlaps nothing, but isn't where one may be.
  EXPECT_FALSE(Error(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},)"
                     R"("b": {"dtype": "U8", "shape": [0], "data_offsets": [2, 2]}})",
                     4)
                   .ok());
}

TEST(SafetensorsTest, CopiesTensorsThatAreNotAligned) {
  std::string header = Tensor("F32", "[2]", "[0, 8]");
  size_t copies = 0;
  for (size_t pad = 0; pad < 4; ++pad, header += ' ') {
    const std::string file = MakeFile(header, 8);
    std::vector<uint64_t> aligned(64);
    std::memcpy(aligned.data(), file.data(), file.size());
    auto parsed = SafetensorsFile::Parse(
        {reinterpret_cast<const uint8_t*>(aligned.data()), file.size()}, "x");
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    const SafetensorsFile moved = std::move(*parsed);
    const TensorView& tensor = moved.tensors().find("w")->second;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 4, 0u);
    EXPECT_EQ(std::memcmp(tensor.data, "\0\1\2\3\4\5\6\7", 8), 0);
    copies += moved.copies();
  }
  EXPECT_EQ(copies, 3u);
}

TEST(SafetensorsTest, WritesAndReadsBack) {
  const TestFolder folder;
  const std::string path = folder / "m.safetensors";
  const std::vector<uint8_t> bytes = {1, 2, 3};
  const std::vector<double> doubles = {1.5, -2.5};
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const std::vector<std::pair<std::string, TensorView>> tensors = {
      {"odd \"name\" é", {bytes.data(), DType::kU8, 1, {3}}},
      {"d", {doubles.data(), DType::kF64, 2, {2, 1}}},
      {"scalar", {floats.data(), DType::kF32, 0, {}}},
      {"f", {floats.data(), DType::kF32, 2, {2, 3}}},
      {"empty", {nullptr, DType::kF32, 1, {0}}},
  };
  const Metadata metadata = {{"format", "pt"}, {"note", "a\nb"}};
  const auto status = WriteSafetensors(path, tensors, metadata);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string file = Slurp(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0u);
  EXPECT_EQ(file.size(), 8 + length + 3 + 16 + 4 + 24);
  auto opened = SafetensorsFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafetensorsFile moved = std::move(*opened);  // views live on
  EXPECT_EQ(moved.copies(), 0u);
  EXPECT_EQ(moved.metadata(), metadata);
  ASSERT_EQ(moved.tensors().size(), tensors.size());
  for (const auto& [name, want] : tensors) {
    const TensorView& got = moved.tensors().find(name)->second;
    EXPECT_EQ(core::ToString(got), core::ToString(want));
    if (want.bytes() == 0) continue;
    EXPECT_EQ(std::memcmp(got.data, want.data, want.bytes()), 0);
  }
  ASSERT_TRUE(WriteSafetensors(path, {}, {}).ok());
  EXPECT_TRUE(SafetensorsFile::Open(path).ok());
}

TEST(SafetensorsTest, RefusesToWriteWrongNames) {
  const TestFolder folder;
  const float one = 1;
  const TensorView tensor = {&one, DType::kF32, 0, {}};
  const std::string path = folder / "m";
  EXPECT_TRUE(FailsWith(WriteSafetensors(path, {{"a", tensor}, {"a", tensor}}, {}),
                        {path, "a: got two tensors of this name"}));
  EXPECT_TRUE(FailsWith(WriteSafetensors(path, {{"__metadata__", tensor}}, {}), {"reserved name"}));
  EXPECT_TRUE(FailsWith(WriteSafetensors(path, {{"\xFF", tensor}}, {}), {"isn't UTF-8"}));
  EXPECT_EQ(folder.CountFiles(), 0u);
}

TEST(SafetensorsTest, OpenNamesTheFile) {
  const TestFolder folder;
  EXPECT_TRUE(FailsWith(SafetensorsFile::Open(folder / "none").status(),
                        {folder / "none", "No such file"}));
  EXPECT_TRUE(FailsWith(SafetensorsFile::Open(folder.Put("m", "")).status(),
                        {folder / "m", "header: got a file of 0 bytes"}));
}

}  // namespace
}  // namespace hognose::io
