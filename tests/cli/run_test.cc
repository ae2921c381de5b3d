// hognose run: what is printed, and what is not.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

const std::string kPrompt = "It was a dark night, and";

std::vector<std::string> Args(std::vector<std::string> more) {
  std::vector<std::string> args = {"run", kDemo, "-p", kPrompt};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string Greedy(std::vector<std::string> more) {
  more.insert(more.end(), {"--temperature", "0"});
  const Outcome o = Hognose(Args(std::move(more)));
  EXPECT_TRUE(Done(o));
  return o.out;
}

TEST(RunTest, GreedyTextIsTheSameAlways) {
  const std::string text = Greedy({"-n", "40"});
  EXPECT_GT(text.size(), 40u);
  EXPECT_FALSE(text.starts_with(kPrompt));
  EXPECT_EQ(Greedy({"-n", "40"}), text);
  EXPECT_EQ(Greedy({"-n", "40", "--seed", "5"}), text);
  for (const std::string threads : {"1", "3"}) {
    EXPECT_EQ(Greedy({"-n", "40", "-t", threads}), text);
  }
  EXPECT_EQ(Greedy({"-n", "40", "--echo"}), kPrompt + text);
  EXPECT_TRUE(text.starts_with(Greedy({"-n", "7"})));
  EXPECT_EQ(Greedy({"-n", "0"}), "");
  EXPECT_EQ(Greedy({"-n", "0", "--echo"}), kPrompt);
  EXPECT_EQ(Greedy({"-n", "9", "-n", "40"}), text);  // the last word counts
}

TEST(RunTest, TheSameSeedGivesTheSameText) {
  const auto run = [](const std::string& seed, const std::string& threads) {
    const Outcome o = Hognose(Args({"-n", "40", "--seed", seed, "-t", threads}));
    EXPECT_TRUE(Done(o));
    return o.out;
  };
  const std::string text = run("7", "1");
  EXPECT_EQ(run("7", "1"), text);
  EXPECT_EQ(run("7", "3"), text);
  EXPECT_NE(run("8", "1"), text);
  EXPECT_NE(run("0", "1"), text);
  EXPECT_NE(run("18446744073709551615", "1"), text);
  const auto fresh = [] { return Hognose(Args({"-n", "40"})).out; };
  EXPECT_NE(fresh(), fresh());
}

TEST(RunTest, DrawingOptionsCount) {
  const std::string text = Greedy({"-n", "40"});
  const auto run = [](std::vector<std::string> more) {
    more.insert(more.end(), {"-n", "40", "--seed", "3"});
    return Hognose(Args(std::move(more))).out;
  };
  EXPECT_EQ(run({"--top-k", "1"}), text);
  EXPECT_EQ(run({"--top-p", "0"}), text);
  EXPECT_EQ(run({"--min-p", "1"}), text);
  EXPECT_NE(run({"--temperature", "5", "--top-k", "0", "--min-p", "0", "--top-p", "1"}), text);
  EXPECT_NE(Greedy({"-n", "40", "--repeat-penalty", "2"}), text);
}

TEST(RunTest, StandardErrorEndsWithCountsAndSpeeds) {
  const Outcome o = Hognose(Args({"-n", "5"}));
  EXPECT_TRUE(Done(o));
  EXPECT_TRUE(o.err.starts_with("prompt: ")) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_NE(o.err.find(" tokens/s; generated: 5 tokens, "), std::string::npos) << o.err;
  EXPECT_TRUE(o.err.ends_with(" tokens/s\n")) << o.err;
  EXPECT_EQ(o.err.find('\r'), std::string::npos);  // no progress bar
}

TEST(RunTest, Json) {
  const core::Value value = Json(Hognose(Args({"-n", "6", "--temperature", "0", "--json"})));
  EXPECT_EQ(Keys(value),
            "text prompt_tokens tokens ids stop_reason prompt_tokens_per_second tokens_per_second");
  EXPECT_EQ(Text(value, "text"), Greedy({"-n", "6"}));
  EXPECT_EQ(Text(value, "stop_reason"), "length");
  EXPECT_EQ(Number(value, "tokens"), 6.0);
  EXPECT_EQ(Ids(value).size(), 6u);
  EXPECT_GT(Number(value, "prompt_tokens"), 3.0);
  EXPECT_GT(Number(value, "prompt_tokens_per_second"), 0.0);
  EXPECT_GT(Number(value, "tokens_per_second"), 0.0);
  const core::Value none = Json(Hognose(Args({"-n", "0", "--json"})));
  EXPECT_EQ(Text(none, "text"), "");
  EXPECT_TRUE(Ids(none).empty());
  const core::Value echo = Json(Hognose(Args({"-n", "0", "--echo", "--json"})));
  EXPECT_EQ(Text(echo, "text"), kPrompt);
}

TEST(RunTest, TheIdsAreThoseOfTheText) {
  const core::Value value = Json(Hognose(Args({"-n", "30", "--temperature", "0", "--json"})));
  std::string ids;
  for (const int32_t id : Ids(value)) ids += std::to_string(id) + " ";
  const Outcome decoded = Hognose({"tokenize", kDemo, "--decode", "--no-special"}, ids);
  EXPECT_EQ(decoded.out, Text(value, "text"));
  const Outcome encoded = Hognose({"tokenize", kDemo}, kPrompt);
  const auto tokens = std::count(encoded.out.begin(), encoded.out.end(), ' ') + 1;
  EXPECT_EQ(Number(value, "prompt_tokens"), static_cast<double>(tokens));
}

// Every substring is a stop text: inside a token, over several, at the end.
TEST(RunTest, StopTextsAreNotPrinted) {
  const std::string text = Greedy({"-n", "24"});
  ASSERT_GT(text.size(), 40u);
  for (const size_t length : {1, 2, 5, 17}) {
    for (size_t at = 3; at + length <= text.size(); at += 13) {
      const std::string stop = text.substr(at, length);
      if (!io::IsUtf8(stop)) continue;
      EXPECT_EQ(Greedy({"-n", "24", "--stop", stop}), text.substr(0, text.find(stop))) << stop;
    }
  }
  EXPECT_EQ(Greedy({"-n", "24", "--stop", "never said"}), text);
  // What begins like a stop text at the end of the run is text.
  EXPECT_EQ(Greedy({"-n", "24", "--stop", text.substr(text.size() - 4) + "never"}), text);
  // The earliest of several ends it; brackets and commas are nothing special.
  const std::string late = text.substr(30, 6), early = text.substr(12, 4);
  EXPECT_EQ(Greedy({"-n", "24", "--stop", late, "--stop", "[a,b]", "--stop", early}),
            text.substr(0, std::min(text.find(early), text.find(late))));
  const core::Value value =
      Json(Hognose(Args({"-n", "24", "--temperature", "0", "--json", "--stop", early})));
  EXPECT_EQ(Text(value, "stop_reason"), "stop");
  EXPECT_EQ(Text(value, "text"), text.substr(0, text.find(early)));
}

// A model whose end of text is a token that this one says early.
class EndOfTextTest : public ::testing::Test {
 protected:
  EndOfTextTest() {
    for (const std::string name : {"model.safetensors", "tokenizer.json", "config.json"}) {
      std::filesystem::create_symlink(kDemo + "/" + name, folder_ / name);
    }
  }
  core::Value RunUntil(int32_t eos, std::vector<std::string> more) {
    folder_.Put("generation_config.json", "{\"eos_token_id\": [0, " + std::to_string(eos) + "]}");
    std::vector<std::string> args = {"run", folder_.path(),  "-p", kPrompt, "-n",
                                     "30",  "--temperature", "0",  "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return Json(Hognose(args));
  }
  TestFolder folder_;
};

TEST_F(EndOfTextTest, EndsAndCanBeIgnored) {
  const core::Value whole = RunUntil(0, {});
  const std::vector<int32_t> ids = Ids(whole);
  ASSERT_EQ(ids.size(), 30u);
  const int32_t eos = ids[10];
  const auto first = static_cast<size_t>(std::find(ids.begin(), ids.end(), eos) - ids.begin());
  const core::Value ended = RunUntil(eos, {});
  EXPECT_EQ(Text(ended, "stop_reason"), "eos");
  EXPECT_EQ(Number(ended, "tokens"), static_cast<double>(first));
  EXPECT_EQ(Ids(ended), std::vector<int32_t>(ids.begin(), ids.begin() + first));
  EXPECT_TRUE(Text(whole, "text").starts_with(Text(ended, "text")));
  const core::Value ignored = RunUntil(eos, {"--ignore-eos"});
  EXPECT_EQ(Text(ignored, "stop_reason"), "length");
  const std::vector<int32_t> others = Ids(ignored);
  EXPECT_EQ(others.size(), 30u);
  EXPECT_EQ(std::count(others.begin(), others.end(), eos), 0);
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + first, others.begin()));
}

TEST(PromptTest, AnyTextIsOne) {
  for (const std::string prompt :
       {"- a list", "--echo", "-n", "[a, b]", "{\"a\": 1}", "\"quoted\"", " ", "\n", "a\tb\r\n",
        "for (int i = 0; i < n; ++i) {\n\tx[i] *= 2;\n}",
        "\U0001F600 \U0001F469\u200D\U0001F680 e\u0301", "-", "%s %n", "<|endoftext|>"}) {
    SCOPED_TRACE(prompt);
    const bool dash = prompt == "-";
    const Outcome o = Launch(
        {.args = {"run", kDemo, "-p", prompt, "-n", "3", "--echo"}, .input = dash ? prompt : ""});
    EXPECT_TRUE(Done(o));
    EXPECT_TRUE(o.out.starts_with(prompt)) << o.out;
    EXPECT_TRUE(io::IsUtf8(o.out));
  }
}

TEST(PromptTest, DashReadsStandardInput) {
  const std::string text = Greedy({"-n", "20"});
  const std::vector<std::string> args = {"run", kDemo, "-p", "-", "-n", "20", "--temperature", "0"};
  const Outcome piped = Hognose(args, kPrompt);
  EXPECT_TRUE(Done(piped));
  EXPECT_EQ(piped.out, text);
  const TestFolder folder;
  const int fd = open(folder.Put("prompt", "not this" + kPrompt).c_str(), O_RDONLY);
  ASSERT_EQ(lseek(fd, 8, SEEK_SET), 8);  // a file is read from where it is
  EXPECT_EQ(Launch({.args = args, .input_fd = fd}).out, text);
  close(fd);
}

TEST(PromptTest, StandardInputIsReadOnlyThen) {
  const TestFolder folder;
  const int fd = open(folder.Put("input", "untouched").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(Done(Launch({.args = Args({"-n", "3"}), .input_fd = fd})));
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 0);
  close(fd);
  EXPECT_TRUE(Done(Launch({.args = Args({"-n", "3"}), .input_closed = true})));
  EXPECT_TRUE(Fails(Launch({.args = {"run", kDemo, "-p", "-"}, .input_closed = true}), 1,
                    "standard input: got no text"));
}

TEST(PromptTest, LongText) {
  std::string text;
  for (int i = 0; text.size() < 200000; ++i) {
    text +=
        "Chapter " + std::to_string(i) + ". She walked on, \U0001F33F and `x[i] = 1;` he said.\n";
  }
  const Outcome o =
      Hognose({"run", kDemo, "-p", "-", "-n", "5", "--temperature", "0", "--json"}, text);
  const core::Value value = Json(o);
  EXPECT_EQ(Number(value, "tokens"), 5.0);
  EXPECT_GT(Number(value, "prompt_tokens"), 20000.0);
}

}  // namespace
}  // namespace hognose::cli_test
