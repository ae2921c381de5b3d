// What no oracle says: refusals, limits, speed on bad words, streaming, threads.
#include "io/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "io/tokenizer/regex.h"

namespace hognose::io {
namespace {

using Ids = std::vector<int32_t>;

constexpr char kModel[] =
    R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abab": 4}, "merges": ["a b", ["ab", "ab"]]})";

// tokenizer.json with these members and the model above.
std::string Json(const std::string& members, const std::string& model = kModel) {
  return "{" + members + (members.empty() ? "" : ", ") + "\"model\": " + model + "}";
}

std::string Error(const std::string& json) {
  const auto tokenizer = Tokenizer::Parse(json, "tokenizer.json");
  return tokenizer.ok() ? "no error" : tokenizer.status().message();
}

std::string Model(const std::string& vocab, const std::string& merges, const std::string& rest) {
  return R"({"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": [)" + merges + "]" + rest + "}";
}

TEST(Tokenizer, NamesTheFieldThatIsWrong) {
  const struct {
    std::string json;
    std::string message;
  } cases[] = {
      {"[]", "tokenizer.json: got an array, want an object"},
      {"{}", "tokenizer.json: model: got nothing, want an object"},
      {R"({"version": "2.0"})", "tokenizer.json: version: got \"2.0\", want \"1.0\""},
      {Json("", R"({"type": "Unigram", "vocab": []})"),
       "tokenizer.json: model.type: got \"Unigram\", want \"BPE\""},
      {Json("", R"({"type": "BPE", "merges": []})"),
       "tokenizer.json: model.vocab: got nothing, want an object of tokens and ids"},
      {Json("", R"({"type": "BPE", "vocab": {}})"),
       "tokenizer.json: model.merges: got nothing, want an array"},
      {Json("", Model(R"("a": -1)", "", "")),
       "tokenizer.json: model.vocab[\"a\"]: got -1, want an id from 0 to 4194303"},
      {Json("", Model(R"("a": 4194304)", "", "")),
       "tokenizer.json: model.vocab[\"a\"]: got 4194304, want an id from 0 to 4194303"},
      {Json("", Model(R"("a": 1.5)", "", "")),
       "tokenizer.json: model.vocab[\"a\"]: got a number, want an id from 0 to 4194303"},
      {Json("", Model(R"("a": 0, "b": 0)", "", "")),
       "tokenizer.json: model.vocab[\"b\"]: got 0, want an id that no other token has; \"a\" has "
       "it"},
      {Json("", Model(R"("a": 0, "b": 1)", R"("a b")", "")),
       "tokenizer.json: model.merges[0]: got \"a b\", want two tokens of the vocabulary that make "
       "a "
       "third"},
      {Json("", Model(R"("a": 0, "aa": 1)", R"("a a", ["a", "x"])", "")),
       "tokenizer.json: model.merges[1]: got [\"a\", \"x\"], want two tokens of the vocabulary "
       "that "
       "make a third"},
      {Json("", Model(R"("a": 0)", R"("a")", "")),
       "tokenizer.json: model.merges[0]: got \"a\", want \"a b\" or [\"a\", \"b\"]"},
      {Json("", Model(R"("a": 0)", R"(["a", 1])", "")),
       "tokenizer.json: model.merges[0]: got an array, want \"a b\" or [\"a\", \"b\"]"},
      {Json("", Model(R"("a": 0)", "", R"(, "dropout": 0.1)")),
       "tokenizer.json: model.dropout: got a number, want null or 0: random merges are not "
       "supported"},
      {Json("", Model(R"("a": 0)", "", R"(, "fuse_unk": 1)")),
       "tokenizer.json: model.fuse_unk: got 1, want true or false"},
      {Json(R"("normalizer": {"type": "NFX"})"),
       "tokenizer.json: normalizer.type: got \"NFX\", want one of \"NFC\", \"NFD\", \"NFKC\", "
       "\"NFKD\", "
       "\"Lowercase\", \"Strip\", \"StripAccents\", \"Prepend\", \"Replace\", \"ByteLevel\", "
       "\"Sequence\""},
      {Json(R"("normalizer": "NFC")"),
       "tokenizer.json: normalizer: got \"NFC\", want null or an object"},
      {Json(
           R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits"}]})"),
       "tokenizer.json: pre_tokenizer.pretokenizers[1].individual_digits: got nothing, want true "
       "or "
       "false"},
      {Json(
           R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Removed", "invert": false})"),
       "tokenizer.json: pre_tokenizer.pattern.Regex: got \"(a\", want a regular expression: "
       "missing )"},
      {Json(
           R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\p{Nope}"}, "behavior": "Removed", "invert": false})"),
       "tokenizer.json: pre_tokenizer.pattern.Regex: got \"\\p{Nope}\", want a regular expression: "
       "unknown property after \\P or \\p"},
      {Json(
           R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Away", "invert": false})"),
       "tokenizer.json: pre_tokenizer.behavior: got \"Away\", want one of \"Removed\", "
       "\"Isolated\", "
       "\"MergedWithPrevious\", \"MergedWithNext\", \"Contiguous\""},
      {Json(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "__"})"),
       "tokenizer.json: pre_tokenizer.replacement: got \"__\", want one character"},
      {Json(
           R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "first"})"),
       "tokenizer.json: pre_tokenizer.prepend_scheme: got \"first\", want \"never\", since "
       "add_prefix_space is false"},
      {Json(
           R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}})"),
       "tokenizer.json: post_processor.special_tokens.<s>: got nothing, want an object with "
       "\"ids\""},
      {Json(
           R"("post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]})"),
       "tokenizer.json: post_processor.single[0].Sequence.id: got \"B\", want \"A\""},
      {Json(R"("post_processor": {"type": "BertProcessing", "cls": ["a", 0], "sep": ["x", 9]})"),
       "tokenizer.json: post_processor: got the id 9, want one that names a token"},
      {Json(R"("decoder": {"type": "WordPiece"})"),
       "tokenizer.json: decoder.type: got \"WordPiece\", want one of \"ByteLevel\", "
       "\"ByteFallback\", "
       "\"Fuse\", \"Strip\", \"Replace\", \"Metaspace\", \"BPEDecoder\", \"Sequence\""},
      {Json(R"("decoder": {"type": "Strip", "content": "a", "start": -1, "stop": 0})"),
       "tokenizer.json: decoder.start: got -1, want an integer from 0 to 1048576"},
      {Json(R"("added_tokens": [{"id": 9, "content": "x"}])"),
       "tokenizer.json: added_tokens[0].single_word: got nothing, want true or false"},
      {Json(R"("added_tokens": {})"), "tokenizer.json: added_tokens: got an object, want an array"},
  };
  for (const auto& c : cases) EXPECT_EQ(Error(c.json), c.message) << c.json;
}

Tokenizer Make(const std::string& json) {
  auto tokenizer = Tokenizer::Parse(json, "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

TEST(Tokenizer, EncodesAndFinds) {
  const Tokenizer tokenizer = Make(Json(""));
  EXPECT_EQ(*tokenizer.Encode("ababcab"), (Ids{4, 3, 2}));
  EXPECT_EQ(*tokenizer.Encode(""), Ids{});
  EXPECT_EQ(*tokenizer.Encode("a?b"), (Ids{2}));             // without unk_token, '?' is dropped
  EXPECT_EQ(*tokenizer.Decode(Ids{4, 3}, false), "abab c");  // no decoder: joined by spaces
  EXPECT_EQ(tokenizer.vocab_size(), 5u);
  EXPECT_TRUE(tokenizer.Has(4));
  EXPECT_FALSE(tokenizer.Has(5));
  EXPECT_FALSE(tokenizer.Has(-1));
  EXPECT_EQ(tokenizer.Find("ab"), 2);
  EXPECT_EQ(tokenizer.Find("x"), std::nullopt);
}

std::string Added(int id, const std::string& content, const std::string& flags) {
  std::string token = R"({"id": )" + std::to_string(id) + R"(, "content": ")" + content + '"';
  for (const char* name : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    const bool on = flags.find(name) != std::string::npos;
    token += std::string(", \"") + name + "\": " + (on ? "true" : "false");
  }
  return token + "}";
}

TEST(AddedTokens, AreNumberedAndFoundLikeTheLibrarys) {
  const Tokenizer tokenizer = Make(Json(
      R"("normalizer": {"type": "Lowercase"}, "decoder": {"type": "Fuse"}, "added_tokens": [)" +
      Added(90, "<x>", "special") + "," + Added(1, "b", "special") + "," +
      Added(91, "Q", "normalized") + "," + Added(92, "q", "normalized") + "]"));
  // The ids in the file do not count: b is the model's, the others follow its five tokens.
  EXPECT_EQ(*tokenizer.Encode("a<x>bQq"), (Ids{0, 5, 1, 6, 6}));
  EXPECT_EQ(tokenizer.vocab_size(), 8u);
  EXPECT_EQ(*tokenizer.Decode(Ids{0, 5, 1, 6, 3}, true), "aqc");
  EXPECT_EQ(*tokenizer.Decode(Ids{0, 5, 1, 6, 3}, false), "a<x>bqc");
  EXPECT_EQ(
      Error(Json(R"("normalizer": {"type": "Strip", "strip_left": true, "strip_right": true}, )"
                 R"("added_tokens": [)" +
                 Added(5, "  ", "normalized") + "]")),
      "tokenizer.json: added_tokens: got \"  \", which normalizes to nothing, want text");
}

TEST(Tokenizer, IgnoresTruncationAndPadding) {
  const Tokenizer tokenizer = Make(Json(
      R"("truncation": {"max_length": 1}, "padding": {"strategy": {"Fixed": 9}, "pad_id": 0})"));
  EXPECT_EQ(*tokenizer.Encode("cc"), (Ids{3, 3}));
}

TEST(Tokenizer, RefusesInvalidUtf8AndUnknownIds) {
  const Tokenizer tokenizer = Make(Json(""));
  EXPECT_EQ(tokenizer.Encode("ab\xC3(").status().message(), "text: byte 2: got invalid UTF-8");
  EXPECT_FALSE(tokenizer.Encode("\xED\xA0\x80").ok());  // a surrogate
  EXPECT_FALSE(tokenizer.Encode("a\xF0\x9F").ok());
  EXPECT_EQ(tokenizer.Decode(Ids{5}, false).status().message(),
            "tokenizer.json: got id 5, want one that names a token");
  EXPECT_FALSE(tokenizer.Decode(Ids{-1}, true).ok());
}

TEST(Tokenizer, FailsWhenUnkIsNeededAndMissing) {
  const Tokenizer tokenizer = Make(Json("", Model(R"("a": 0)", "", R"(, "unk_token": "<unk>")")));
  EXPECT_TRUE(tokenizer.Encode("aa").ok());
  EXPECT_EQ(tokenizer.Encode("ax").status().message(),
            "tokenizer.json: model.unk_token: got \"<unk>\", want a token of the vocabulary");
}

TEST(Tokenizer, HolesInTheVocabularyAreNoTokens) {
  const Tokenizer tokenizer = Make(Json("", Model(R"("a": 7, "b": 3)", "", "")));
  EXPECT_EQ(tokenizer.vocab_size(), 8u);
  EXPECT_TRUE(tokenizer.Has(3));
  EXPECT_FALSE(tokenizer.Has(4));
}

TEST(Tokenizer, ALongWordTakesNoLongTime) {
  // Each of these would take hours if time grew with the square of the length.
  std::string vocab = R"("a": 0, "aa": 1, "aaaa": 2, "aaaaaaaa": 3)";
  const Tokenizer tokenizer = Make(Json("", Model(vocab, R"("a a", "aa aa", "aaaa aaaa")", "")));
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer.Encode(std::string(2'000'000, 'a'));
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, Ids(250'000, 3));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Tokenizer, ACatastrophicPatternIsAnErrorNotAHang) {
  const auto regex = tokenizer::Regex::Compile("(a+)+(a+)+(a+)+$");
  ASSERT_TRUE(regex.ok());
  const std::string text = std::string(5000, 'a') + "b";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(regex->ForEachMatch(text, [](size_t, size_t) {}).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// What a merge list means, in as few words as possible: the first merge of the list that occurs,
// at its leftmost place, again and again.
std::vector<std::string> MergeSlowly(
    std::vector<std::string> symbols,
    const std::vector<std::pair<std::string, std::string>>& merges) {
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& [left, right] : merges) {
      for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += right;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  return symbols;
}

// Long and short words are merged by different code.
TEST(Bpe, WordsOfAnyLengthMergeAsTheListSays) {
  const Tokenizer tokenizer = Make(Json(
      "",
      Model(
          R"("a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "ca": 5, "abc": 6, "abcab": 7, "bcb": 8, "aa": 9)",
          R"("b c", "a b", "a bc", "abc ab", "c a", "bc b", "a a", "ab c")", "")));
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"b", "c"}, {"a", "b"},  {"a", "bc"}, {"abc", "ab"},
      {"c", "a"}, {"bc", "b"}, {"a", "a"},  {"ab", "c"}};
  uint32_t random = 1;
  for (size_t length = 0; length < 120; ++length) {
    std::string word;
    std::vector<std::string> symbols;
    for (size_t i = 0; i < length; ++i) {
      random = random * 1664525 + 1013904223;
      symbols.emplace_back(1, "abc"[(random >> 20) % 3]);
      word += symbols.back();
    }
    Ids want;
    for (const auto& symbol : MergeSlowly(symbols, merges)) want.push_back(*tokenizer.Find(symbol));
    EXPECT_EQ(*tokenizer.Encode(word), want) << word;
  }
}

constexpr char kFallback[] =
    R"({"type": "BPE", "byte_fallback": true, "vocab": {"\u2581a": 0, "b": 1, "<0xC3>": 2, "<0xA9>": 3, "<s>": 4}, "merges": []})";
constexpr char kLlamaDecoder[] =
    R"("decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(Stream, HoldsBackBytesUntilTheyAreAcharacter) {
  const Tokenizer tokenizer = Make(Json(kLlamaDecoder, kFallback));
  Tokenizer::Stream stream(tokenizer, false);
  EXPECT_EQ(*stream.Push(0), "a");  // the space in front of the text is no part of it
  EXPECT_EQ(*stream.Push(2), "");
  EXPECT_EQ(*stream.Push(3), "");
  EXPECT_EQ(*stream.Push(0), "\xC3\xA9 a");
  EXPECT_EQ(*stream.Push(2), "");
  const std::string saved = stream.Save();
  EXPECT_EQ(*stream.Finish(), "\xEF\xBF\xBD");
  Tokenizer::Stream other(tokenizer, false);
  ASSERT_TRUE(other.Restore(saved).ok());
  EXPECT_EQ(*other.Push(3), "");
  EXPECT_EQ(*other.Push(1),
            "\xC3\xA9"
            "b");
}

TEST(Stream, RefusesStatesItDidNotWrite) {
  const Tokenizer tokenizer = Make(Json(kLlamaDecoder, kFallback));
  Tokenizer::Stream stream(tokenizer, false);
  ASSERT_TRUE(stream.Push(2).ok());
  const std::string saved = stream.Save();
  for (size_t size = 0; size < saved.size(); ++size) {
    EXPECT_FALSE(stream.Restore(saved.substr(0, size)).ok());
  }
  EXPECT_FALSE(stream.Restore(saved + "x").ok());
  EXPECT_EQ(stream.Save(), saved);  // as it was
  EXPECT_TRUE(stream.Restore("").ok() == false);
}

TEST(Tokenizer, TwoThreadsMayEncodeAtOnce) {
  const Tokenizer tokenizer = Make(Json(""));
  const std::string text(3000, 'a');
  const auto want = *tokenizer.Encode(text + "bab");
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) same[t] += *tokenizer.Encode(text + "bab") == want;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 50));
}

}  // namespace
}  // namespace hognose::io
