// Against what the tokenizers library gave: tests/oracle/tokenizer_fixtures.py and
// unicode_tables.py.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/file.h"
#include "io/json.h"
#include "io/tokenizer/regex.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io {
namespace {

using core::Value;

const std::string kFolder = std::string(HOGNOSE_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

Value ReadJson(const std::string& name) {
  auto text = ReadFile(kFolder + name + ".json");
  EXPECT_TRUE(text.ok()) << text.status().message();
  auto value = ParseJson(*text, name);
  EXPECT_TRUE(value.ok()) << value.status().message();
  return std::move(*value);
}

std::vector<int32_t> Ids(const Value& array) {
  std::vector<int32_t> ids;
  for (const Value& id : *array.AsArray()) ids.push_back(static_cast<int32_t>(*id.AsInt()));
  return ids;
}

// Pushes ids one by one; every third time through Save and Restore.
std::string StreamText(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  std::string text;
  Tokenizer::Stream stream(tokenizer, skip);
  for (size_t i = 0; i < ids.size(); ++i) {
    auto piece = stream.Push(ids[i]);
    if (!piece.ok()) return "error: " + piece.status().message();
    EXPECT_EQ(tokenizer::FindInvalidUtf8(*piece), std::string::npos);
    text += *piece;
    if (i % 3 != 2) continue;
    Tokenizer::Stream other(tokenizer, skip);
    EXPECT_TRUE(other.Restore(stream.Save()).ok());
    stream = std::move(other);
  }
  auto rest = stream.Finish();
  return rest.ok() ? text + *rest : "error: " + rest.status().message();
}

void ExpectText(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip,
                const Value& want) {
  if (want.is_null()) return;
  const auto text = tokenizer.Decode(ids, skip);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, *want.AsString());
  EXPECT_EQ(StreamText(tokenizer, ids, skip), *want.AsString());
}

// One result of the fixture; true if it holds anything.
bool Check(const Tokenizer& tokenizer, const std::string& text, const Value& result) {
  if (result.is_null()) return false;
  const auto& row = *result.AsArray();
  const auto want = Ids(row[0]);
  const auto ids = tokenizer.Encode(text, true);
  const auto plain = tokenizer.Encode(text, false);
  EXPECT_TRUE(ids.ok() && plain.ok()) << ids.status().message();
  if (!ids.ok() || !plain.ok()) return true;
  EXPECT_EQ(*ids, want);
  EXPECT_EQ(*plain, row[1].is_null() ? want : Ids(row[1]));
  ExpectText(tokenizer, want, false, row[2]);
  ExpectText(tokenizer, want, true, row[3].is_null() ? row[2] : row[3]);
  return true;
}

class Fixture : public testing::TestWithParam<const char*> {};

TEST_P(Fixture, MatchesTheLibrary) {
  const Value fixture = ReadJson(GetParam());
  const Value texts = ReadJson("texts");
  const std::string& model = *fixture.Find("model")->AsString();
  std::string json;
  if (model == "gpt-neox") {
    auto text = ReadFile(std::string(HOGNOSE_BUILD_DIR) + "/fixtures/gpt-neox/tokenizer.json");
    ASSERT_TRUE(text.ok()) << text.status().message();
    json = std::move(*text);
  } else {
    Value all = *fixture.Find("config");
    all.AsObject()->emplace_back("model", *ReadJson("models").Find(model));
    json = ToJson(all);
  }
  const auto tokenizer = Tokenizer::Parse(json, "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto& results = *fixture.Find("results")->AsArray();
  ASSERT_EQ(results.size(), texts.AsArray()->size());
  size_t compared = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& text = *(*texts.AsArray())[i].AsString();
    SCOPED_TRACE("text " + std::to_string(i) + ": " + text);
    if (Check(*tokenizer, text, results[i])) ++compared;
  }
  EXPECT_GT(compared, results.size() / 2);
}

constexpr const char* kFixtures[] = {"gpt_neox",
                                     "byte_level",
                                     "byte_level_prefix",
                                     "gpt4",
                                     "cased",
                                     "deepseek",
                                     "llama",
                                     "metaspace_always",
                                     "metaspace_never",
                                     "metaspace_first",
                                     "metaspace_whole",
                                     "strip_first",
                                     "old_metaspace",
                                     "nfc",
                                     "nfd",
                                     "nfkc",
                                     "nfkd",
                                     "lowercase",
                                     "split_removed",
                                     "byte_level_normalizer",
                                     "split_isolated",
                                     "empty_matches",
                                     "words",
                                     "split_mergedwithprevious",
                                     "split_contiguous",
                                     "space_words",
                                     "continuing",
                                     "split_mergedwithnext",
                                     "digits",
                                     "nothing",
                                     "bytes_then_split",
                                     "decoders",
                                     "regex_00",
                                     "regex_01",
                                     "regex_02",
                                     "regex_03",
                                     "regex_04",
                                     "regex_05",
                                     "regex_06",
                                     "regex_07",
                                     "regex_08",
                                     "regex_09",
                                     "regex_10",
                                     "regex_11",
                                     "regex_12",
                                     "regex_13",
                                     "regex_14",
                                     "regex_15",
                                     "regex_16",
                                     "regex_17",
                                     "falcon"};
INSTANTIATE_TEST_SUITE_P(Tokenizer, Fixture, testing::ValuesIn(kFixtures),
                         [](const auto& info) { return std::string(info.param); });

// Every code point, against the ranges of the fixture's member `name`.
template <typename Is>
void ExpectSet(const Value& sets, const std::string& name, Is&& is) {
  ASSERT_NE(sets.Find(name), nullptr) << name;
  std::vector<bool> want(0x110000);
  for (const Value& range : *sets.Find(name)->AsArray()) {
    const auto ends = Ids(range);
    for (int32_t c = ends[0]; c <= ends[1]; ++c) want[static_cast<size_t>(c)] = true;
  }
  size_t wrong = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (is(c) != want[c] && ++wrong < 5) {
      ADD_FAILURE() << name << ": U+" << std::hex << static_cast<unsigned>(c) << " want "
                    << want[c];
    }
  }
  EXPECT_EQ(wrong, 0u) << name;
}

TEST(Unicode, EveryCodePointHasTheLibrarysProperties) {
  using namespace tokenizer;
  const Value sets = ReadJson("unicode");
  ExpectSet(sets, "\\p{L}", [](char32_t c) { return ClassOf(c) == CharClass::kLetter; });
  ExpectSet(sets, "\\p{N}", [](char32_t c) { return ClassOf(c) == CharClass::kNumber; });
  ExpectSet(sets, "\\s", IsSpace);
  ExpectSet(sets, "Digits", IsNumeric);
  ExpectSet(sets, "Punctuation", IsPunctuation);
  ExpectSet(sets, "StripAccents", IsMark);
  ExpectSet(sets, "Whitespace", IsWord);
}

TEST(Unicode, EveryCodePointIsMatchedAsInTheLibrary) {
  const Value sets = ReadJson("unicode");
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) tokenizer::AppendChar(c, &all);
  }
  for (const auto& [name, ranges] : *sets.AsObject()) {
    if (name[0] != '\\' && name[0] != '[') continue;  // not a pattern
    const auto regex = tokenizer::Regex::Compile(name);
    ASSERT_TRUE(regex.ok()) << name << regex.status().message();
    std::vector<bool> matched(0x110000);
    const auto status = regex->ForEachMatch(all, [&](size_t begin, size_t) {
      matched[tokenizer::DecodeChar(all.data() + begin)] = true;
    });
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectSet(sets, name, [&](char32_t c) { return matched[c]; });
  }
}

}  // namespace
}  // namespace hognose::io
