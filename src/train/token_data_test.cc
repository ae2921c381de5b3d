#include "train/token_data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "io/test_util.h"
#include "train/testing.h"

namespace hognose::train {
namespace {

using io::FailsWith;
using io::TestFolder;
using Ids = std::vector<int32_t>;

io::Tokenizer MakeTokenizer() {
  auto tokenizer = io::Tokenizer::Parse(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3},
          "merges": ["a b"]}})",
      "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

Ids All(const TokenData& data) {
  Ids ids(data.size());
  data.Copy(0, ids);
  return ids;
}

class TokenDataTest : public ::testing::Test {
 protected:
  core::Result<TokenData> Load(std::string_view name, std::string_view bytes,
                               DataFormat format = DataFormat::kAuto, bool tokenizer = true) {
    return TokenData::Load(folder_.Put(name, bytes),
                           {.format = format,
                            .tokenizer = tokenizer ? &tokenizer_ : nullptr,
                            .vocab = 10,
                            .end_of_text = end_of_text_});
  }
  void Expect(std::string_view name, std::string_view bytes, const Ids& want,
              DataFormat format = DataFormat::kAuto) {
    const auto data = Load(name, bytes, format);
    ASSERT_TRUE(data.ok()) << data.status().message();
    EXPECT_EQ(All(*data), want) << name << ": " << bytes;
  }
  core::Status Error(std::string_view name, std::string_view bytes,
                     DataFormat format = DataFormat::kAuto) {
    return Load(name, bytes, format).status();
  }

  TestFolder folder_;
  io::Tokenizer tokenizer_ = MakeTokenizer();
  std::optional<int32_t> end_of_text_;
};

TEST_F(TokenDataTest, ReadsEveryFormat) {
  Expect("a", "1, 2\n3,\r\n\t9 ", {1, 2, 3, 9});
  Expect("a.csv", "1,2,3", {1, 2, 3});
  Expect("a.jsonl", "1 2 3", {1, 2, 3});
  Expect("a.npy", MakeNpy<int64_t>("<i8", "(3,)", {1, 2, 9}), {1, 2, 9});
  Expect("a.npy", MakeNpy<int32_t>("<i4", "(3,)", {1, 2, 9}), {1, 2, 9});
  Expect("noname", MakeNpy<int32_t>("<i4", "(2,)", {1, 2}), {1, 2});
  Expect("ids", MakeNpy<int32_t>("<i4", "(2,)", {1, 2}), {1, 2}, DataFormat::kIds);
  Expect("a.txt", "abca", {2, 3, 0});
  Expect("a.jsonl", "{\"text\": \"abc\"}\n", {2, 3});
  Expect("a.txt", "{\"text\": \"abc\"}", {2, 3}, DataFormat::kJsonl);
}

TEST_F(TokenDataTest, CopiesAnyPart) {
  for (const auto& data :
       {Load("a", "1 2 3 4"), Load("b.npy", MakeNpy<int64_t>("<i8", "(4,)", {1, 2, 3, 4})),
        Load("c.npy", MakeNpy<int32_t>("<i4", "(4,)", {1, 2, 3, 4}))}) {
    Ids two(2);
    data->Copy(1, two);
    EXPECT_EQ(two, (Ids{2, 3}));
    EXPECT_TRUE(data->document_ends().empty());
  }
}

TEST_F(TokenDataTest, EndsEveryDocument) {
  const std::string lines =
      "{\"text\": \"ab\"}\r\n\n{\"id\": 7, \"text\": \"cca\"}\n{\"text\": \"\"}";
  const auto bare = Load("a.jsonl", lines);
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  EXPECT_EQ(All(*bare), (Ids{2, 3, 3, 0}));
  EXPECT_TRUE(std::ranges::equal(bare->document_ends(), std::vector<size_t>{1, 4}));
  end_of_text_ = 9;
  const auto ended = Load("a.jsonl", lines);
  ASSERT_TRUE(ended.ok()) << ended.status().message();
  EXPECT_EQ(All(*ended), (Ids{2, 9, 3, 3, 0, 9, 9}));
  EXPECT_TRUE(std::ranges::equal(ended->document_ends(), std::vector<size_t>{2, 6, 7}));
}

TEST_F(TokenDataTest, FindsTheDocumentsOfAWindow) {
  end_of_text_ = 9;
  const auto data = Load("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"cca\"}\n{\"text\": \"\"}");
  ASSERT_TRUE(data.ok());  // ends 2, 6, 7
  using Starts = std::vector<size_t>;
  EXPECT_EQ(SegmentStarts(*data, 0, 7), (Starts{0, 2, 6}));
  EXPECT_EQ(SegmentStarts(*data, 0, 2), (Starts{0}));  // begins behind the window
  EXPECT_EQ(SegmentStarts(*data, 0, 3), (Starts{0, 2}));
  EXPECT_EQ(SegmentStarts(*data, 2, 4), (Starts{0}));  // exactly the second document
  EXPECT_EQ(SegmentStarts(*data, 3, 4), (Starts{0, 3}));
  EXPECT_EQ(SegmentStarts(*Load("a", "1 2 3"), 0, 2), (Starts{0}));
}

TEST_F(TokenDataTest, NamesWhatIsWrong) {
  EXPECT_TRUE(FailsWith(Error("a", ""), {"/a: got an empty file, want tokens"}));
  EXPECT_TRUE(FailsWith(Error("a", " \n"), {"/a: got no tokens"}));
  EXPECT_TRUE(FailsWith(Error("a", "1 2 10"), {"/a: token 2: got 10, want an id from 0 to 9"}));
  EXPECT_TRUE(FailsWith(Error("a", "1 99999999999"), {"token 1: got \"99999999999\""}));
  EXPECT_TRUE(FailsWith(Error("a", "1 -2", DataFormat::kIds), {"token 1: got \"-2\""}));
  EXPECT_TRUE(FailsWith(Error("a", "1 2.0", DataFormat::kIds), {"token 1: got \"2.0\""}));
  EXPECT_TRUE(FailsWith(Error("a.npy", MakeNpy<int64_t>("<i8", "(2,)", {1, -1})),
                        {"/a.npy: token 1: got -1, want an id from 0 to 9"}));
  EXPECT_TRUE(FailsWith(Error("a.npy", MakeNpy<int64_t>("<i8", "(1,)", {int64_t{1} << 32})),
                        {"token 0: got 4294967296"}));
  EXPECT_TRUE(FailsWith(Error("a.npy", MakeNpy<int64_t>("<i8", "(1, 2)", {1, 1})),
                        {"/a.npy: got i64 [1, 2], want i64 or i32 of one dimension"}));
  EXPECT_TRUE(FailsWith(Error("a.npy", MakeNpy<float>("<f4", "(1,)", {1})), {"got f32 [1]"}));
  EXPECT_TRUE(FailsWith(Error("a.npy", MakeNpy<int64_t>("<i8", "(0,)", {})), {"got no tokens"}));
  EXPECT_TRUE(FailsWith(Error("a.npy", "1 2"), {"/a.npy: got no NPY file"}));
  EXPECT_TRUE(FailsWith(Error("a.txt", "ab\xFF"), {"/a.txt: "}));
  EXPECT_TRUE(FailsWith(TokenData::Load(folder_ / "none", {.vocab = 1}).status(),
                        {"/none: could not open: No such file"}));
  EXPECT_EQ(Error("a", "1", DataFormat::kCsv).code(), core::StatusCode::kUsage);
  EXPECT_EQ(ParseDataFormat("xml").status().code(), core::StatusCode::kUsage);
}

TEST_F(TokenDataTest, NamesTheLineOfJsonl) {
  const auto error = [&](const char* line) {
    return Error("a.jsonl", std::string("{\"text\": \"a\"}\n\n") + line);
  };
  EXPECT_TRUE(FailsWith(error("{\"text\": 5}"), {"/a.jsonl: line 3: got an integer as \"text\""}));
  EXPECT_TRUE(FailsWith(error("{}"), {"/a.jsonl: line 3: got an object without \"text\""}));
  EXPECT_TRUE(FailsWith(error("[]"), {"/a.jsonl: line 3: got an array, want an object"}));
  EXPECT_TRUE(FailsWith(error("{\"text\": \"a"), {"/a.jsonl: line 3 column"}));
}

TEST_F(TokenDataTest, TextNeedsATokenizer) {
  const auto error = [&](std::string_view bytes, DataFormat format = DataFormat::kAuto) {
    return Load("a.txt", bytes, format, /*tokenizer=*/false).status();
  };
  EXPECT_TRUE(FailsWith(error("1 2 x\n3"),
                        {"/a.txt: got text (\"x\" at byte 4), want token ids: the model has no"}));
  EXPECT_TRUE(FailsWith(error("12", DataFormat::kText), {"/a.txt: got text, want token ids"}));
  EXPECT_TRUE(FailsWith(error("{}", DataFormat::kJsonl), {"/a.txt: got text, want token ids"}));
}

}  // namespace
}  // namespace hognose::train
