// Two runs with a state file between them are one run.
#include <filesystem>

#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

const std::string kPrompt = "Once upon a time \U0001F98E";

struct Style {
  const char* name;
  std::vector<std::string> args;
};

// `random` draws nearly any token, single bytes too, so that characters break at most splits.
const Style kStyles[] = {
    {"greedy", {"--temperature", "0"}},
    {"drawn", {"--seed", "11"}},
    {"penalised", {"--seed", "12", "--repeat-penalty", "1.3"}},
    {"random",
     {"--seed", "13", "--temperature", "100", "--top-k", "0", "--top-p", "1", "--min-p", "0"}},
    {"stop", {"--seed", "11", "--stop", "zzzz", "--stop", " the Queen"}},
};

class StateTest : public ::testing::TestWithParam<Style> {
 protected:
  // The command, with -n `tokens` and the style's arguments.
  Outcome Go(size_t tokens, std::vector<std::string> more) {
    std::vector<std::string> args = {"run", kDemo, "--ignore-eos", "-n", std::to_string(tokens)};
    args.insert(args.end(), GetParam().args.begin(), GetParam().args.end());
    args.insert(args.end(), more.begin(), more.end());
    Outcome o = Hognose(args);
    EXPECT_TRUE(Done(o));
    return o;
  }
  TestFolder folder_;
  std::string state_ = folder_ / "state";
};

TEST_P(StateTest, TwoRunsAreOne) {
  constexpr size_t kTokens = 24;
  const std::string whole = Go(kTokens, {"-p", kPrompt}).out;
  ASSERT_FALSE(whole.empty());
  for (size_t split = 0; split <= kTokens; ++split) {
    const Outcome first = Go(split, {"-p", kPrompt, "--state-out", state_});
    const Outcome second = Go(kTokens - split, {"--state-in", state_});
    EXPECT_EQ(first.out + second.out, whole) << split;
    EXPECT_TRUE(io::IsUtf8(first.out)) << split;
    EXPECT_TRUE(second.err.starts_with("prompt: 0 tokens")) << second.err;  // nothing again
  }
  EXPECT_EQ(folder_.CountFiles(), 1u);
}

TEST_P(StateTest, ManyRunsAreOne) {
  const std::string whole = Go(20, {"-p", kPrompt}).out;
  std::string text = Go(0, {"-p", kPrompt, "--state-out", state_}).out;
  for (int i = 0; i < 19; ++i) {
    text += Go(1, {"--state-in", state_, "--state-out", state_}).out;  // in place
  }
  text += Go(1, {"--state-in", state_}).out;
  EXPECT_EQ(text, whole);
}

INSTANTIATE_TEST_SUITE_P(Styles, StateTest, ::testing::ValuesIn(kStyles),
                         [](const auto& info) { return info.param.name; });

// An unfinished character is kept, or printed as U+FFFD where nothing is.
TEST(StateFileTest, KeepsAnUnfinishedCharacter) {
  const TestFolder folder;
  const std::string state = folder / "state";
  const auto run = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"run",     kDemo,     "-p", kPrompt,   "--temperature",
                                     "100",     "--top-k", "0",  "--top-p", "1",
                                     "--min-p", "0",       "-n"};
    args.insert(args.end(), more.begin(), more.end());
    return Hognose(args);
  };
  size_t kept = 0;
  for (int seed = 0; seed < 40; ++seed) {
    const std::vector<std::string> args = {"3", "--seed", std::to_string(seed)};
    std::vector<std::string> with = args;
    with.insert(with.end(), {"--state-out", state});
    const std::string without_state = run(args).out, with_state = run(with).out;
    if (without_state == with_state) continue;
    EXPECT_EQ(without_state.substr(0, with_state.size()), with_state);
    EXPECT_TRUE(without_state.substr(with_state.size()).starts_with("\uFFFD"));
    EXPECT_EQ(Hognose({"run", kDemo, "--state-in", state, "-n", "0"}).out,
              without_state.substr(with_state.size()));
    ++kept;
  }
  EXPECT_GT(kept, 0u);
}

TEST(StateFileTest, APromptGoesOnWithoutSpecialTokens) {
  const TestFolder folder;
  const std::string state = folder / "state";
  // The same tokens, given at once and in two parts.
  const std::string first = "The captain", second = " looked at the sea";
  const Outcome whole =
      Hognose({"run", kDemo, "-p", first + second, "-n", "20", "--temperature", "0"});
  ASSERT_TRUE(Done(Hognose({"run", kDemo, "-p", first, "-n", "0", "--state-out", state})));
  for (const bool echo : {false, true}) {
    std::vector<std::string> args = {"run",  kDemo, "--state-in", state,           "-p",
                                     second, "-n",  "20",         "--temperature", "0"};
    if (echo) args.push_back("--echo");
    EXPECT_EQ(Hognose(args).out, (echo ? second : "") + whole.out);
  }
}

TEST(StateFileTest, AnotherSeedGivesAnotherText) {
  const TestFolder folder;
  const std::string state = folder / "state";
  const auto go_on = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"run", kDemo, "--state-in", state, "-n", "20"};
    args.insert(args.end(), more.begin(), more.end());
    return Hognose(args).out;
  };
  ASSERT_TRUE(
      Done(Hognose({"run", kDemo, "-p", kPrompt, "-n", "5", "--seed", "1", "--state-out", state})));
  const std::string text = go_on({});
  EXPECT_EQ(go_on({"--seed", "1"}), text);
  EXPECT_NE(go_on({"--seed", "2"}), text);
  EXPECT_EQ(go_on({"--seed", "2"}), go_on({"--seed", "2"}));
}

TEST(StateFileTest, EndOfTextIsDrawnAgain) {
  const TestFolder folder;
  for (const std::string name : {"model.safetensors", "tokenizer.json", "config.json"}) {
    std::filesystem::create_symlink(kDemo + "/" + name, folder / name);
  }
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"run", folder.path(), "--json", "--seed", "4", "-n", "12"};
    args.insert(args.end(), more.begin(), more.end());
    return Json(Hognose(args));
  };
  const int32_t eos = Ids(run({"-p", kPrompt})).at(6);
  folder.Put("generation_config.json", "{\"eos_token_id\": " + std::to_string(eos) + "}");
  const std::string state = folder / "state";
  EXPECT_EQ(Text(run({"-p", kPrompt, "--state-out", state}), "stop_reason"), "eos");
  const core::Value again = run({"--state-in", state});
  EXPECT_EQ(Text(again, "stop_reason"), "eos");
  EXPECT_EQ(Number(again, "tokens"), 0.0);
}

}  // namespace
}  // namespace hognose::cli_test
