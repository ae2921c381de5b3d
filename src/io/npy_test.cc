#include "io/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "io/test_util.h"

namespace hognose::io {
namespace {

using core::DType;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string MakeNpy(std::string header, std::string_view data, char major = 1) {
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  const size_t length = header.size();
  file += static_cast<char>(length & 0xFF);
  file += static_cast<char>(length >> 8);
  if (major > 1) file += std::string(2, '\0');
  return file + header + std::string(data);
}

std::string Dict(std::string_view descr, std::string_view order, std::string_view shape) {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}\n", descr, order,
                     shape);
}

core::Status Error(const std::string& file) { return ParseNpy(Bytes(file), "x.npy").status(); }
core::Status HeaderError(const std::string& header) { return Error(MakeNpy(header, "")); }

TEST(NpyTest, WritesAndReadsBack) {
  const TestFolder folder;
  const std::string path = folder / "a.npy";
  const std::array<float, 6> values = {1, -2, 3.5f, 0, 1e-30f, 6};
  const auto status = WriteNpy(path, 2, 3, [&](NpyRowSink sink) {
    EXPECT_TRUE(sink(std::span(values).first(3)));
    EXPECT_TRUE(sink(std::span(values).last(3)));
    return core::Status();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string bytes = Slurp(path);
  ASSERT_EQ(bytes.size(), 128 + sizeof(values));
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\1\0v\0", 10));
  EXPECT_EQ(bytes.substr(10, 59), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  EXPECT_EQ(bytes[127], '\n');
  auto array = OpenNpy(path);
  ASSERT_TRUE(array.ok()) << array.status().message();
  const NpyArray moved = std::move(*array);
  EXPECT_EQ(core::ToString(moved.tensor), "f32 [2, 3]");
  EXPECT_EQ(moved.copy, nullptr);
  EXPECT_EQ(std::memcmp(moved.tensor.data, values.data(), sizeof(values)), 0);
}

TEST(NpyTest, RefusesRowsThatDoNotFit) {
  const TestFolder folder;
  const std::string path = folder / "a.npy";
  const auto write = [&](size_t rows, size_t cols) {
    return WriteNpy(path, 2, 3, [&](NpyRowSink sink) {
      for (size_t i = 0; i < rows; ++i) sink(std::vector<float>(cols));
      return core::Status();
    });
  };
  EXPECT_TRUE(FailsWith(write(1, 3), {"a.npy: got 1 rows, want 2"}));
  EXPECT_TRUE(FailsWith(write(3, 3), {"a.npy: got 3 rows, want 2"}));
  EXPECT_TRUE(FailsWith(write(2, 4), {"a.npy: got a row of 4 values, want 3"}));
  EXPECT_EQ(folder.CountFiles(), 0u);
}

TEST(NpyTest, TellsTheWorkToStopWhenTheDiskIsFull) {
  size_t rows = 0;
  const auto status = WriteNpy("/dev/full", 1000000, 1024, [&](NpyRowSink sink) {
    const std::vector<float> row(1024);
    while (rows < 1000000 && sink(row)) ++rows;
    return core::Status();
  });
  EXPECT_TRUE(FailsWith(status, {"/dev/full: could not write: No space left on device"}));
  EXPECT_LT(rows, 1000u);
}

TEST(NpyTest, ReadsTypesShapesAndVersions) {
  const struct {
    const char* descr;
    const char* shape;
    size_t bytes;
    const char* want;
  } cases[] = {
      {"<f4", "()", 4, "f32 []"},          {"<f8", "(3,)", 24, "f64 [3]"},
      {"<i8", "(2, 3)", 48, "i64 [2, 3]"}, {"<f4", "(1,2,3,4,)", 96, "f32 [1, 2, 3, 4]"},
      {"<f4", "(0, 5)", 0, "f32 [0, 5]"},  {"<i8", "(0,)", 0, "i64 [0]"},
      {"<i4", "(5,)", 20, "i32 [5]"},
  };
  for (const auto& c : cases) {
    for (const char version : {1, 2}) {
      const std::string file =
          MakeNpy(Dict(c.descr, "False", c.shape), std::string(c.bytes, 'x'), version);
      const auto array = ParseNpy(Bytes(file), "x.npy");
      ASSERT_TRUE(array.ok()) << array.status().message();
      EXPECT_EQ(core::ToString(array->tensor), c.want);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(array->tensor.data) % core::Bytes(array->tensor.dtype),
                0u);
    }
  }
}

TEST(NpyTest, ReadsAnyOrderOfKeysAndQuotes) {
  const std::string file =
      MakeNpy("{\"shape\":(1,),'fortran_order':False ,\"descr\":'<f4'}", "abcd");
  const auto array = ParseNpy(Bytes(file), "x.npy");
  ASSERT_TRUE(array.ok()) << array.status().message();
  EXPECT_EQ(std::memcmp(array->tensor.data, "abcd", 4), 0);
}

TEST(NpyTest, CopiesDataThatIsNotAligned) {
  const std::string base = MakeNpy(Dict("<f4", "False", "(1,)"), "abcd");
  size_t copies = 0;
  for (size_t pad = 0; pad < 4; ++pad) {
    std::vector<uint64_t> aligned(64);
    const std::string file = MakeNpy(Dict("<f4", "False", "(1,)") + std::string(pad, ' '), "abcd");
    std::memcpy(aligned.data(), file.data(), file.size());
    const auto array =
        ParseNpy({reinterpret_cast<const uint8_t*>(aligned.data()), file.size()}, "x.npy");
    ASSERT_TRUE(array.ok()) << array.status().message();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array->tensor.data) % 4, 0u);
    EXPECT_EQ(std::memcmp(array->tensor.data, "abcd", 4), 0);
    copies += array->copy != nullptr;
  }
  EXPECT_EQ(copies, 3u);
}

TEST(NpyTest, RefusesWhatIsNoNpy) {
  EXPECT_TRUE(
      FailsWith(Error(""), {"x.npy: got no NPY file, want one that begins with \\x93NUMPY"}));
  EXPECT_TRUE(FailsWith(Error("\x93NUMPY"), {"got no NPY file"}));
  EXPECT_TRUE(FailsWith(Error("PK\3\4 and so on"), {"got no NPY file"}));
  EXPECT_TRUE(FailsWith(Error(MakeNpy("{}", "", 3)), {"got NPY version 3.0, want 1.0 or 2.0"}));
  const std::string good = MakeNpy(Dict("<f4", "False", "(1,)"), "abcd");
  for (size_t size = 8; size < good.size(); ++size) EXPECT_FALSE(Error(good.substr(0, size)).ok());
  EXPECT_TRUE(FailsWith(Error(good.substr(0, 9)), {"header: got a file of 9 bytes", "truncated"}));
  EXPECT_TRUE(
      FailsWith(Error(good.substr(0, 30)), {"header: got a file of 30 bytes", "truncated"}));
  std::string huge = MakeNpy("{}", "", 2);
  huge.replace(8, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_TRUE(FailsWith(Error(huge), {"want at least 4294967307"}));
}

TEST(NpyTest, RefusesOtherData) {
  const auto error = [](const char* descr, const char* order, const char* shape, size_t bytes) {
    return Error(MakeNpy(Dict(descr, order, shape), std::string(bytes, 'x')));
  };
  EXPECT_TRUE(FailsWith(error(">f4", "False", "(1,)", 4), {"descr: got '>f4'", "little-endian"}));
  EXPECT_TRUE(FailsWith(error("<f2", "False", "(1,)", 2),
                        {"got '<f2', want '<f4', '<f8', '<i8' or '<i4'"}));
  EXPECT_TRUE(FailsWith(error("|O", "False", "(1,)", 8), {"descr: got '|O'"}));
  EXPECT_TRUE(
      FailsWith(error("<f4", "True", "(1, 2)", 8), {"fortran_order: got True, want False"}));
  EXPECT_TRUE(
      FailsWith(error("<f4", "False", "(2,)", 7), {"got 7 bytes of data, want 8 for f32 [2]"}));
  EXPECT_TRUE(FailsWith(error("<f4", "False", "(2,)", 9), {"got 9 bytes of data, want 8"}));
  EXPECT_TRUE(
      FailsWith(error("<f8", "False", "(4294967296, 4294967296)", 0), {"shape: got", "64 bits"}));
  EXPECT_TRUE(FailsWith(error("<f8", "False", "(0, 4294967296, 4294967296)", 0), {"64 bits"}));
  EXPECT_TRUE(FailsWith(error("<f4", "False", "(18446744073709551616,)", 0), {"fits in 64 bits"}));
  EXPECT_TRUE(FailsWith(error("<f4", "False", "(1,1,1,1,1)", 4), {"at most 4 dimensions"}));
}

TEST(NpyTest, TheHeaderIsStrict) {
  EXPECT_TRUE(
      FailsWith(HeaderError(""), {"x.npy: header: got the end of the header at byte 0, want '{'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{}"), {"got no descr"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr': '<f4'}"), {"got no fortran_order"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr': '<f4', 'fortran_order': False}"), {"got no shape"}));
  EXPECT_TRUE(
      FailsWith(HeaderError("{'descr': '<f4', 'descr': '<f4'}"), {"key 'descr'", "once each"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'x': 1}"), {"got the key 'x'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{descr: '<f4'}"), {"got 'descr: '", "want a key in quotes"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr' '<f4'}"), {"want ':'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr': '<f4' 'shape': ()}"), {"want ',' or '}'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr': [('a', '<f4')]}"), {"want a type like '<f4'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr': '<f4"), {"want a type like '<f4'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'descr': '\\x3cf4'}"), {"want a type like '<f4'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'fortran_order': 0}"), {"want True or False"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'shape': [1]}"), {"want '(' of a shape"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'shape': (1)}"), {"want ',' in a shape of one dimension"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'shape': (-1,)}"), {"want an integer from 0 on"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'shape': (1.5,)}"), {"want ',' or ')'"}));
  EXPECT_TRUE(FailsWith(HeaderError("{'shape': (,)}"), {"want an integer from 0 on"}));
  EXPECT_TRUE(
      FailsWith(HeaderError(Dict("<f4", "False", "()") + "x"), {"want the end of the header"}));
}

}  // namespace
}  // namespace hognose::io
