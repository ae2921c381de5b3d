#include "runtime/text_stream.h"

#include <gtest/gtest.h>

#include "io/json.h"
#include "tests/support/status.h"

namespace hognose::runtime {
namespace {

// Byte level. Ids 0 to 3 are a to d, 4 and 5 the bytes of U+00E9, 6 to 8 those of U+20AC, 9 is
// "abc", 10 "bcd", 11 a special token.
io::Tokenizer MakeTokenizer() {
  auto tokenizer = io::Tokenizer::Parse(
      R"({"added_tokens": [{"id": 11, "content": "<end>", "single_word": false, "lstrip": false,
          "rstrip": false, "normalized": false, "special": true}],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
          "use_regex": false},
          "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
          "use_regex": false},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "Ã": 4, "©": 5, "â": 6,
          "Ĥ": 7, "¬": 8, "abc": 9, "bcd": 10}, "merges": []}})",
      "tokenizer");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

struct Fed {
  std::vector<std::string> pieces;  // one a token, then what Finish gives
  std::string text;
  bool stopped = false;
};

// Feeds ids until a stop; `restart_at`: hands the state over to a new stream in front of that
// token.
Fed Feed(const io::Tokenizer& tokenizer, const std::vector<std::string>& stops,
         const std::vector<int32_t>& ids, size_t restart_at = SIZE_MAX) {
  Fed run;
  TextStream stream(tokenizer, stops);
  const auto take = [&](core::Result<std::string> piece) {
    EXPECT_TRUE(piece.ok()) << piece.status().message();
    run.pieces.push_back(*piece);
    run.text += *piece;
    EXPECT_TRUE(io::IsUtf8(*piece)) << *piece;
  };
  for (size_t i = 0; i < ids.size() && !stream.stopped(); ++i) {
    if (i == restart_at) {
      const std::string saved = stream.Save();
      stream = TextStream(tokenizer, stops);
      EXPECT_TRUE(stream.Restore(saved).ok());
    }
    take(stream.Push(ids[i]));
  }
  take(stream.Finish());
  run.stopped = stream.stopped();
  return run;
}

class TextStreams : public ::testing::Test {
 protected:
  io::Tokenizer tokenizer_ = MakeTokenizer();
  Fed Feed(const std::vector<std::string>& stops, const std::vector<int32_t>& ids) {
    return runtime::Feed(tokenizer_, stops, ids);
  }
};

TEST_F(TextStreams, WithoutStopsEverythingComesAtOnce) {
  const Fed run = Feed({}, {0, 1, 9, 3});
  EXPECT_EQ(run.pieces, (std::vector<std::string>{"a", "b", "abc", "d", ""}));
  EXPECT_FALSE(run.stopped);
  EXPECT_EQ(Feed({""}, {0, 1}).text, "ab") << "an empty stop text is ignored";
  EXPECT_EQ(Feed({}, {0, 11, 1}).text, "ab") << "special tokens have no text";
}

TEST_F(TextStreams, AStopTextSplitOverTokensIsNotPrinted) {
  const Fed run = Feed({"bcd"}, {0, 1, 2, 3, 0});
  EXPECT_EQ(run.pieces, (std::vector<std::string>{"a", "", "", "", ""}));
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(Feed({"bcd"}, {0, 10, 0}).text, "a");
  EXPECT_EQ(Feed({"bcd"}, {9, 3}).text, "a");
}

TEST_F(TextStreams, WhatTurnsOutToBeNoStopTextIsGivenBack) {
  const Fed run = Feed({"bcd"}, {0, 1, 2, 2, 3});
  EXPECT_EQ(run.pieces, (std::vector<std::string>{"a", "", "", "bcc", "d", ""}));
  // A new beginning inside of a failed one.
  EXPECT_EQ(Feed({"aab"}, {0, 0, 0, 1}).text, "a");
  EXPECT_EQ(Feed({"abab"}, {0, 1, 0, 0, 1, 0, 1}).text, "aba");
}

TEST_F(TextStreams, AnUnfinishedStopTextAtTheEndIsText) {
  const Fed run = Feed({"bcd"}, {0, 1, 2});
  EXPECT_EQ(run.pieces, (std::vector<std::string>{"a", "", "", "bc"}));
  EXPECT_FALSE(run.stopped);
}

TEST_F(TextStreams, AStopAtTheVeryEndAndAtTheStart) {
  const Fed end = Feed({"d"}, {0, 1, 3});
  EXPECT_EQ(end.text, "ab");
  EXPECT_TRUE(end.stopped);
  const Fed start = Feed({"abc"}, {9, 9});
  EXPECT_EQ(start.text, "");
  EXPECT_TRUE(start.stopped);
}

// The stop text that is complete first wins, however the text is cut into tokens.
TEST_F(TextStreams, OverlappingStopsDoNotDependOnTheTokens) {
  const std::vector<int32_t> spellings[] = {{0, 1, 2, 3}, {9, 3}, {0, 10}};
  for (const auto& ids : spellings) {
    EXPECT_EQ(Feed({"abcd", "bc"}, ids).text, "a");
    EXPECT_EQ(Feed({"bc", "abcd"}, ids).text, "a");
    EXPECT_EQ(Feed({"cd", "abcd"}, ids).text, "") << "both end here: the longest";
    EXPECT_EQ(Feed({"d", "c", "b"}, ids).text, "a");
    EXPECT_EQ(Feed({"abcda", "cd"}, ids).text, "ab");
  }
}

TEST_F(TextStreams, CharactersAndStopsOfSeveralBytes) {
  const Fed run = Feed({}, {0, 4, 5, 6, 7, 8, 1});
  EXPECT_EQ(run.pieces, (std::vector<std::string>{"a", "", "é", "", "", "€", "b", ""}));
  EXPECT_EQ(Feed({"é€"}, {0, 4, 5, 6, 7, 8, 1}).text, "a");
  EXPECT_EQ(Feed({"é"}, {0, 4, 5, 1}).text, "a");
  // An unfinished character at the end.
  EXPECT_EQ(Feed({}, {0, 6, 7}).text, "a\uFFFD");
  const Fed stop = Feed({"a\uFFFD"}, {1, 0, 6, 7});
  EXPECT_EQ(stop.text, "b") << "what Finish gives may complete a stop text";
  EXPECT_TRUE(stop.stopped);
}

TEST_F(TextStreams, AHandOverAtAnyTokenEqualsOneRun) {
  const std::vector<int32_t> ids = {0,  4, 5, 1, 2, 6, 7, 8, 1, 2, 2,
                                    11, 9, 4, 5, 6, 7, 8, 1, 2, 3, 0};
  for (const std::vector<std::string>& stops :
       std::vector<std::vector<std::string>>{{}, {"bcd"}, {"bc€", "é€b"}, {"€bcc"}, {"zz"}}) {
    const Fed whole = Feed(stops, ids);
    for (size_t at = 0; at < ids.size(); ++at) {
      const Fed parts = runtime::Feed(tokenizer_, stops, ids, at);
      ASSERT_EQ(parts.pieces, whole.pieces) << at;
      ASSERT_EQ(parts.stopped, whole.stopped) << at;
    }
  }
}

TEST_F(TextStreams, DamagedStatesAreRefusedAndChangeNothing) {
  TextStream stream(tokenizer_, {"bcd"});
  ASSERT_TRUE(stream.Push(1).ok());
  const std::string held = stream.Save();
  for (const std::string& bad :
       {std::string(), std::string(":"), std::string("5:"), std::string("x:"), std::string("-1:"),
        std::string("1"), std::string("99999999999999999999:b"), std::string("0:") + "junk",
        held + "x", held.substr(0, held.size() - 1)}) {
    const auto status = stream.Restore(bad);
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_EQ(stream.Save(), held);
  }
  EXPECT_TRUE(stream.Restore(held).ok());
}

TEST_F(TextStreams, AnUnknownIdIsAnError) {
  TextStream stream(tokenizer_, {});
  for (const int32_t id : {12, -1, INT32_MAX}) EXPECT_FALSE(stream.Push(id).ok()) << id;
  EXPECT_TRUE(stream.Push(0).ok());
}

}  // namespace
}  // namespace hognose::runtime
