// hognose tokenize: bytes in, bytes out.
#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

const std::string kNeox = HOGNOSE_BUILD_DIR "/fixtures/gpt-neox/tokenizer.json";
// Composed characters only: GPT-NeoX's tokenizer composes others.
const std::string kTexts[] = {
    "",
    "\n",
    "no newline",
    "one newline\n",
    "two\n\n",
    "\r\n\t  spaces   ",
    std::string("a\0b\0\0c", 6),
    std::string("\0", 1),
    "\U0001F600\U0001F469\u200D\U0001F680 caf\u00E9 \u4F60\u597D \u0639\u0631\u0628\u064A",
    "for (int i = 0; i < n; ++i) {\n\tx[i] *= 2;  // twice\n}\n",
    "<|endoftext|>",
    "a<|endoftext|>b",
    "\"quotes\" \\ %s $HOME `x`",
};

TEST(TokenizeTest, RoundTrips) {
  for (const auto& model : {kDemo, kNeox}) {
    for (const auto& text : kTexts) {
      SCOPED_TRACE(text);
      const Outcome ids = Hognose({"tokenize", model}, text);
      EXPECT_TRUE(Done(ids));
      EXPECT_EQ(ids.err, "");
      EXPECT_EQ(ids.out.find_first_not_of("0123456789 \n"), std::string::npos) << ids.out;
      EXPECT_EQ(ids.out.find('\n'), ids.out.size() - 1);
      EXPECT_EQ(ids.out.find("  "), std::string::npos);
      const Outcome back = Hognose({"tokenize", model, "--decode"}, ids.out);
      EXPECT_TRUE(Done(back));
      EXPECT_EQ(back.out, text);
    }
  }
}

TEST(TokenizeTest, ALongText) {
  std::string text;
  while (text.size() < 200000) text += "Line " + std::to_string(text.size()) + " \U0001F40D\n";
  const Outcome ids = Hognose({"tokenize", kDemo}, text);
  EXPECT_TRUE(Done(ids));
  EXPECT_EQ(Hognose({"tokenize", kDemo, "--decode"}, ids.out).out, text);
}

// What the tokenizers library gave for the same texts.
TEST(TokenizeTest, EqualsTheLibrary) {
  const std::string folder = HOGNOSE_SOURCE_DIR "/tests/fixtures/tokenizers/";
  const auto texts = io::ParseJson(Slurp(folder + "texts.json"), "texts.json");
  const auto fixture = io::ParseJson(Slurp(folder + "gpt_neox.json"), "gpt_neox.json");
  ASSERT_TRUE(texts.ok() && fixture.ok());
  const auto& rows = *fixture->Find("results")->AsArray();
  ASSERT_EQ(rows.size(), texts->AsArray()->size());
  size_t compared = 0;
  for (size_t i = 0; i < rows.size(); i += 5) {
    if (rows[i].is_null()) continue;
    std::string want;
    for (const auto& id : *rows[i].AsArray()->front().AsArray()) {
      want += (want.empty() ? "" : " ") + std::to_string(*id.AsInt());
    }
    const std::string& text = *(*texts->AsArray())[i].AsString();
    EXPECT_EQ(Hognose({"tokenize", kNeox}, text).out, want + "\n") << text;
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

TEST(TokenizeTest, SpecialTokens) {
  // A tokenizer that puts <s> in front of every text.
  const std::string folder = HOGNOSE_SOURCE_DIR "/tests/fixtures/tokenizers/";
  const auto config = io::ParseJson(Slurp(kDemo + "/tokenizer.json"), "tokenizer.json");
  ASSERT_TRUE(config.ok());
  core::Value with = *config;
  const auto template_of = io::ParseJson(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>",
          "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
          "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0],
          "tokens": ["<|endoftext|>"]}}})",
      "template");
  ASSERT_TRUE(template_of.ok());
  for (auto& [name, value] : *with.AsObject()) {
    if (name == "post_processor") value = *template_of;
  }
  const TestFolder files;
  const std::string path = files.Put("tokenizer.json", io::ToJson(with));
  const std::string plain = Hognose({"tokenize", kDemo}, "Hello there").out;
  EXPECT_EQ(Hognose({"tokenize", path}, "Hello there").out, "0 " + plain);
  EXPECT_EQ(Hognose({"tokenize", files.path()}, "Hello there").out, "0 " + plain);
  EXPECT_EQ(Hognose({"tokenize", path, "--no-special"}, "Hello there").out, plain);
  EXPECT_EQ(Hognose({"tokenize", path, "--decode"}, "0 " + plain).out, "<|endoftext|>Hello there");
  EXPECT_EQ(Hognose({"tokenize", path, "--decode", "--no-special"}, "0 " + plain).out,
            "Hello there");
}

TEST(TokenizeTest, Json) {
  const std::string text = "Hello \U0001F600\n";
  const Outcome plain = Hognose({"tokenize", kDemo}, text);
  const core::Value value = Json(Hognose({"tokenize", kDemo, "--json"}, text));
  EXPECT_EQ(Keys(value), "ids");
  std::string ids;
  for (const int32_t id : Ids(value)) ids += (ids.empty() ? "" : " ") + std::to_string(id);
  EXPECT_EQ(ids + "\n", plain.out);
  const core::Value back = Json(Hognose({"tokenize", kDemo, "--json", "--decode"}, ids));
  EXPECT_EQ(Keys(back), "text");
  EXPECT_EQ(Text(back, "text"), text);
}

TEST(TokenizeTest, DecodesIdsInAnyShape) {
  const std::string want = Hognose({"tokenize", kDemo, "--decode"}, "11 12 13").out;
  EXPECT_FALSE(want.empty());
  for (const std::string ids : {"11,12,13", " 11\n12\t13 \n", "11, 12,\r\n13,"}) {
    EXPECT_EQ(Hognose({"tokenize", kDemo, "--decode"}, ids).out, want);
  }
  EXPECT_EQ(Hognose({"tokenize", kDemo, "--decode"}, "").out, "");
}

TEST(TokenizeTest, StandardInputClosed) {
  const Outcome o = Launch({.args = {"tokenize", kDemo}, .input_closed = true});
  EXPECT_TRUE(Done(o));
  EXPECT_EQ(o.out, "\n");
}

}  // namespace
}  // namespace hognose::cli_test
