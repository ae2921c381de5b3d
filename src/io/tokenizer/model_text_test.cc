// That tables read from the text are those of the tree, and what they are made of.
#include "io/tokenizer/model_text.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "io/file.h"
#include "io/json.h"
#include "io/tokenizer/hash_index.h"
#include "io/tokenizer/json_scanner.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

std::string Text(const std::string& vocab, const std::string& merges) {
  return R"({"x": [1, "]}", {}], "model": {"type": "BPE", "vocab": )" + vocab +
         ", \"merges\": " + merges + R"(, "y": 1}, "z": null})";
}

TEST(ModelText, ReadsBothFormsOfMergesAndEscapes) {
  const auto text = ReadModelText(Text(
      "{ \"\\u0120\\n\\ud83d\\ude00\":0,\"b\" : 1 ,\n\"\xC4\xA0\\n\xF0\x9F\x98\x80"
      "b\":7, \"\": 3}",
      "[\t[\"\\u0120\\u000a\\uD83D\\uDE00\",\"\\u0062\"], \"b \xC4\xA0\\n\xF0\x9F\x98\x80\"]"));
  EXPECT_FALSE(text);  // there is no second merged token
  const auto good = ReadModelText(Text(R"({"a": 0, "\u0120": 1, "a)"
                                       "\xC4\xA0"
                                       R"(": 2, "\"\\": 5, "a\"\\": 4, "": 3})",
                                       R"(["a \u0120", [ "a" , "\"\\" ]])"));
  ASSERT_TRUE(good);
  EXPECT_EQ(good->rest, R"({"x": [1, "]}", {}], "model": {"type": "BPE", "vocab":{}, "merges":[])"
                        R"(, "y": 1}, "z": null})");
  const Vocabulary& vocabulary = good->tables.vocabulary;
  EXPECT_EQ(vocabulary.count(), 6u);
  EXPECT_EQ(vocabulary.Find("\xC4\xA0"), 1);
  EXPECT_EQ(vocabulary.Find("\"\\"), 5);
  EXPECT_EQ(vocabulary.Find(""), 3);
  EXPECT_EQ(vocabulary.Find("b"), std::nullopt);
  EXPECT_EQ(good->tables.merges.Find(0, 1).id, 2);
  EXPECT_EQ(good->tables.merges.Find(0, 5).rank, 1u);
  EXPECT_EQ(good->tables.merges.Find(1, 0).rank, MergeTable::kNoRank);
}

TEST(ModelText, LeavesAllElseToTheTree) {
  EXPECT_TRUE(ReadModelText(Text(R"({"a": 0, "aa": 1})", R"(["a a"])")));
  for (const auto& [vocab, merges] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a": 0, "aa": 1})", "[]"},
           {R"({"a": 0, "aa": 1})", R"(["a  a"])"},
           {R"({"a": 0, "aa": 1})", R"(["aa"])"},
           {R"({"a": 0, "aa": 1})", R"(["a "])"},
           {R"({"a": 0, "aa": 1})", R"([" a"])"},
           {R"({"a": 0, "aa": 1})", R"(["a b"])"},
           {R"({"a": 0, "aa": 1})", R"(["#version: 0.2", "a a"])"},
           {R"({"a": 0, "aa": 1})", R"([["a"]])"},
           {R"({"a": 0, "aa": 1})", R"([["a", "a", "a"]])"},
           {R"({"a": 0, "aa": 1})", R"(["a a",])"},
           {R"({"a": 0, "aa": 1})", R"({"a a": 0})"},
           {R"({"a": 0, "aa": 0})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1, "a": 2})", R"(["a a"])"},
           {R"({"a": 00, "aa": 1})", R"(["a a"])"},
           {R"({"a": -0, "aa": 1})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1.0})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1e0})", R"(["a a"])"},
           {R"({"a": 0, "aa": 4194304})", R"(["a a"])"},
           {R"({"a": 0, "aa": 18446744073709551617})", R"(["a a"])"},
           {R"({"a": 0, "aa": "1"})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1,})", R"(["a a"])"},
           {R"({"a": 0 "aa": 1})", R"(["a a"])"},
           {R"(["a", "aa"])", R"(["a a"])"},
           {R"({"a": 0, "aa": 1, "\ud800": 2})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1, "\udc00": 2})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1, "\ud800\u0041": 2})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1, "\x": 2})", R"(["a a"])"},
           {R"({"a": 0, "aa": 1, "\u12g4": 2})", R"(["a a"])"},
           {"{\"a\": 0, \"aa\": 1, \"\n\": 2}", R"(["a a"])"},
           {"{\"a\": 0, \"aa\": 1, \"\xC4\": 2}", R"(["a a"])"},
           {"{\"a\": 0, \"aa\": 1, \"\xC4\": 2, \"\xA0\": 3}", R"(["a a"])"},
           {"{\"a\": 0,\f\"aa\": 1}", R"(["a a"])"},
       }) {
    EXPECT_FALSE(ReadModelText(Text(vocab, merges))) << vocab << ' ' << merges;
  }
  EXPECT_FALSE(ReadModelText(""));
  EXPECT_FALSE(ReadModelText("[]"));
  EXPECT_FALSE(ReadModelText(R"({"model": {"merges": ["a a"], "vocab": {"a": 0, "aa": 1}}})"));
  const std::string text = Text(R"({"a": 0, "\u0120": 1, "aa": 2})", R"(["a a", ["a", "a"]])");
  for (size_t size = 0; size < text.find("]]"); ++size)
    EXPECT_FALSE(ReadModelText(text.substr(0, size)));
}

TEST(ModelText, ErrorsAreThoseOfTheWholeText) {
  const std::string vocab = R"({"a": 0, "aa": 1})", merges = R"(["a a"])";
  const auto error = [](const std::string& json) {
    const auto tokenizer = Tokenizer::Parse(json, "t.json");
    return tokenizer.ok() ? "none" : tokenizer.status().message();
  };
  const std::string good = Text(vocab, merges);
  EXPECT_EQ(error(good), "none");
  EXPECT_EQ(error(good + "x"), "t.json: line 1 column " + std::to_string(good.size() + 1) +
                                   ": got 'x' after the value, want the end of the text");
  std::string prefixed = good;
  prefixed.replace(good.find("\"y\""), 3, "\"continuing_subword_prefix\"");
  EXPECT_EQ(error(prefixed), "t.json: model.continuing_subword_prefix: got 1, want a string");
  prefixed.replace(prefixed.find("prefix\": 1") + 9, 1, "\"bb\"");
  EXPECT_EQ(error(prefixed),
            "t.json: model.merges[0]: got \"a a\", want two tokens of the vocabulary that make a "
            "third");
  std::string twice = good;
  twice.replace(good.find("\"y\""), 3, "\"vocab\"");
  EXPECT_NE(error(twice).find("got the key \"vocab\" twice"), std::string::npos);
}

// The members as the tree has them.
void ExpectSame(const ModelTables& tables, const core::Value& model) {
  const auto& vocab = *model.Find("vocab")->AsObject();
  ASSERT_EQ(tables.vocabulary.count(), vocab.size());
  for (const auto& [token, id] : vocab) {
    ASSERT_EQ(tables.vocabulary.Find(token), *id.AsInt());
    ASSERT_EQ(tables.vocabulary.Token(static_cast<int32_t>(*id.AsInt())), token);
  }
  uint32_t rank = 0;
  for (const core::Value& merge : *model.Find("merges")->AsArray()) {
    std::string left, right;
    if (const auto* line = merge.AsString()) {
      left = line->substr(0, line->find(' '));
      right = line->substr(line->find(' ') + 1);
    } else {
      left = *(*merge.AsArray())[0].AsString();
      right = *(*merge.AsArray())[1].AsString();
    }
    const auto found =
        tables.merges.Find(*tables.vocabulary.Find(left), *tables.vocabulary.Find(right));
    ASSERT_EQ(found.rank, rank++);
    ASSERT_EQ(tables.vocabulary.Token(found.id), left + right);
  }
}

TEST(ModelText, GivesWhatTheTreeGives) {
  const auto json = ReadFile(HOGNOSE_BUILD_DIR "/fixtures/gpt-neox/tokenizer.json");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const auto tree = ParseJson(*json, "x");
  ASSERT_TRUE(tree.ok());
  // As published, and printed over many lines.
  for (const std::string& text : {*json, ToJson(*tree, 2)}) {
    const auto read = ReadModelText(text);
    ASSERT_TRUE(read);
    ExpectSame(read->tables, *tree->Find("model"));
    EXPECT_LT(read->rest.size(), text.size() / 50);
    EXPECT_TRUE(ParseJson(read->rest, "x").ok());
  }
}

TEST(JsonScanner, StepsOverValues) {
  for (const std::string value :
       {"1", "-1.5e3", "true", "\"a\\\"]\"", "[]", "[1, [2, {\"a\": [\"]\"]}], \"}\"]", "{}",
        "{\"a\" : {\"b\": null}}", "\"a long string, with \xC3\xA9 in it\""}) {
    const std::string json = value + " , 7";
    JsonScanner text(json);
    EXPECT_TRUE(text.SkipValue() && text.Take(',')) << value;
    int64_t number = 0;
    EXPECT_TRUE(text.TakeNumber(&number) && number == 7 && text.Peek() == 0) << value;
  }
  for (const std::string text : {"", "]", ",", "[1", "{\"a\": 1", "\"a", "[\"a]"}) {
    EXPECT_FALSE(JsonScanner(text).SkipValue()) << text;
  }
}

TEST(JsonScanner, SpacesAndStringsOfEveryLength) {
  for (size_t spaces = 0; spaces < 40; ++spaces) {
    for (size_t length = 0; length < 20; ++length) {
      const std::string content(length, 'x');
      const std::string text =
          std::string(spaces, ' ') + "\n\t" + std::string(spaces, ' ') + '"' + content;
      std::string_view string;
      const std::string closed = text + '"';
      JsonScanner scanner(closed);
      ASSERT_TRUE(scanner.TakeString(&string));
      ASSERT_EQ(string, content);
      ASSERT_EQ(scanner.offset(), closed.size());
      ASSERT_FALSE(JsonScanner(text).TakeString(&string));
      const std::string control = text + "\x1F\"";
      ASSERT_FALSE(JsonScanner(control).TakeString(&string));
    }
  }
}

TEST(HashIndex, FindsWhatIsThereAndTellsEqualHashesApart) {
  core::Rng rng(1);
  for (const size_t count : {0, 1, 7, 1000, 5000}) {
    for (const uint64_t hash_mask : {~uint64_t{0}, uint64_t{0xFF} << 56, uint64_t{0}}) {
      if (hash_mask == 0 && count > 1000) continue;
      std::vector<uint64_t> values;
      HashIndex index;
      index.Reset(count, count);
      for (size_t i = 0; i < count; ++i) {
        values.push_back(rng.Next());
        auto slot =
            index.At(values[i] & hash_mask, [&](size_t k) { return values[k] == values[i]; });
        EXPECT_TRUE(slot.free());
        slot.Set(i);
      }
      const auto find = [&](uint64_t value) {
        return index.Find(value & hash_mask, [&](size_t k) { return values[k] == value; });
      };
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(find(values[i]), i);
      EXPECT_EQ(find(rng.Next()), HashIndex::kNone);
    }
  }
}

TEST(MergeTable, TheLastOfEqualPairsCounts) {
  core::Rng rng(2);
  MergeTable table;
  std::map<std::pair<int32_t, int32_t>, std::pair<uint32_t, int32_t>> want;
  EXPECT_EQ(table.Find(0, 0).rank, MergeTable::kNoRank);
  for (uint32_t rank = 0; rank < 5000; ++rank) {
    const auto left = static_cast<int32_t>(rng.Next() % 60),
               right = static_cast<int32_t>(rng.Next() % 60);
    table.Add(left, right, static_cast<int32_t>(rank) + 60);
    want[{left, right}] = {rank, static_cast<int32_t>(rank) + 60};
  }
  table.Index();
  for (int32_t left = 0; left < 60; ++left) {
    for (int32_t right = 0; right < 60; ++right) {
      const auto found = table.Find(left, right);
      const auto it = want.find({left, right});
      ASSERT_EQ(found.rank, it == want.end() ? MergeTable::kNoRank : it->second.first);
      ASSERT_EQ(found.id, it == want.end() ? -1 : it->second.second);
    }
  }
}

TEST(Vocabulary, RefusesTokensAndIdsThatAreThereTwice) {
  Vocabulary vocabulary;
  EXPECT_EQ(vocabulary.Find("a"), std::nullopt);
  EXPECT_TRUE(vocabulary.Add("a", 5) && vocabulary.Add("", 1) && !vocabulary.Add("b", 5));
  EXPECT_TRUE(vocabulary.Index());
  EXPECT_EQ(vocabulary.Find("a"), 5);
  EXPECT_TRUE(vocabulary.Has(1) && !vocabulary.Has(0) && !vocabulary.Has(6));
  EXPECT_TRUE(vocabulary.Add("a", 2));
  EXPECT_FALSE(vocabulary.Index());
}

// Against the other validator, which JSON has.
TEST(FindInvalidUtf8, AgreesWithJsons) {
  core::Rng rng(3);
  const std::string_view parts[] = {"a",        "bcdefgh",      "\xC3\xA9",
                                    "\xC4\xA0", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                    "\xC2\x80", "\xDF\xBF"};
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (size_t n = rng.Next() % 40; n > 0; --n) text += parts[rng.Next() % (i % 2 == 0 ? 8 : 4)];
    for (size_t n = rng.Next() % 3; n > 0 && !text.empty(); --n) {
      text[rng.Next() % text.size()] = static_cast<char>(rng.Next());
    }
    const size_t valid = ValidUtf8Prefix(text);
    ASSERT_EQ(FindInvalidUtf8(text), valid == text.size() ? std::string_view::npos : valid);
  }
}

}  // namespace
}  // namespace hognose::io::tokenizer
