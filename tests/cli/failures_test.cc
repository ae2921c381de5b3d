// Every wrong use and every wrong input: its exit code, and one line that begins with what is
// wrong.
#include <filesystem>

#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

struct Case {
  std::vector<std::string> args;
  std::string begin;          // of the line
  std::string middle = ": ";  // somewhere in the line
  std::string input = {};
};

void Check(const std::vector<Case>& cases, int code) {
  ASSERT_FALSE(cases.empty());
  for (const auto& c : cases) {
    std::string line = "hognose";
    for (const auto& arg : c.args) line += " " + arg;
    SCOPED_TRACE(line);
    EXPECT_TRUE(Fails(Hognose(c.args, c.input), code, c.begin, c.middle));
  }
}

TEST(UsageTest, CommandsAndFlags) {
  Check(
      {
          {{}, "COMMAND: ", "want one of run, score, tokenize, "},
          {{"walk"}, "walk: unknown command, want one of run"},
          {{"--walk"}, "--walk: unknown flag"},
          {{"-x", "run"}, "-x: unknown flag"},
          {{"walk", "run"}, "walk: "},
          {{"run", "--walk"}, "--walk: unknown flag"},
          {{"run", "-z"}, "-z: unknown flag"},
          {{"run", "--walk=3"}, "--walk=3: unknown flag"},
          {{"run", kDemo, "another", "-p", "x"}, "another: unexpected argument"},
          {{"run", "-p", "x", "--two\nlines"}, "--two\\x0alines: unknown flag"},
          {{"score", "--walk"}, "--walk: unknown flag"},
          {{"tokenize", "--walk"}, "--walk: unknown flag"},
          {{"inspect", "--walk"}, "--walk: unknown flag"},
          {{"bench", "--walk"}, "--walk: unknown flag"},
          {{"run", "-p"}, "-p/--prompt: got no value"},
          {{"run", "-p", "x", "-n"}, "-n/--tokens: got no value"},
          {{"run", "-p", "x", "--stop"}, "--stop: got no value"},
          {{"run", "-p", "x", "--state-out"}, "--state-out: got no value"},
          {{"score", "--ids"}, "--ids: got no value"},
          {{"bench", "-t"}, "-t/--threads: got no value"},
          {{"run", "", "-p", "x"}, "MODEL: got \"\""},
          {{"inspect", ""}, "PATH: got \"\""},
          {{"run", "-p", "x", "--state-out", ""}, "--state-out: got \"\""},
          {{"run", "-p", "x", "--state-in", ""}, "--state-in: got \"\""},
          {{"score", kDemo, "--ids", ""}, "--ids: got \"\""},
      },
      2);
}

TEST(UsageTest, Numbers) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& command, const std::string& flag,
                       const std::string& label, const std::vector<std::string>& values) {
    for (const auto& value : values) {
      cases.push_back({{command, kDemo, flag, value}, label + ": got \"" + value + "\", want "});
    }
  };
  const std::vector<std::string> never = {
      "", "x", "1x", " 1", "0x10", "-1", "--", "1e400", "nan", "+1", "99999999999999999999999"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), never.begin(), never.end());
    return more;
  };
  add("run", "-n", "-n/--tokens", with({"1.5", "1e3"}));
  add("run", "--tokens", "-n/--tokens", {"x"});
  add("run", "-t", "-t/--threads", with({"0", "1025"}));
  add("run", "--temperature", "--temperature", with({"101", "inf"}));
  add("run", "--top-k", "--top-k", with({"1.5"}));
  add("run", "--top-p", "--top-p", with({"1.01"}));
  add("run", "--min-p", "--min-p", with({"1.01"}));
  add("run", "--repeat-penalty", "--repeat-penalty", with({"0"}));
  add("run", "--seed", "--seed", with({"18446744073709551616"}));
  add("score", "--piece", "--piece", with({"0", "4097"}));
  add("score", "--activations", "--activations", {"", "bf16"});
  add("bench", "--prompt", "--prompt", {"", "x", "4,", ",4", "4,,5", "4,-1", "4 5"});
  add("bench", "--generate", "--generate", never);
  add("bench", "--batch", "--batch", with({"0"}));
  add("bench", "-t", "-t/--threads", with({"0"}));
  add("inspect", "-t", "-t/--threads", with({"0"}));
  Check(cases, 2);
}

TEST(UsageTest, WhatACommandNeeds) {
  const std::string ids = Fixture("mamba_basic") + "/config.json";
  Check(
      {
          {{"run", kDemo}, "-p/--prompt: got none"},
          {{"run", kDemo, "-p", ""}, "-p/--prompt: got no text"},
          {{"score", kDemo}, "--ids, --text: got none, want exactly one"},
          {{"score", kDemo, "--ids", ids, "--text", ids}, "--ids, --text: got both, want exactly"},
      },
      2);
}

TEST(InputTest, Models) {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "empty");
  const std::string file = folder.Put("file", "x");
  std::filesystem::create_directory(folder / "bare");
  folder.Put("bare/config.json", "{}");
  const std::string no_tokenizer = Fixture("mamba_basic");
  std::vector<Case> cases;
  for (const auto& [path, begin, middle] : std::vector<std::array<std::string, 3>>{
           {folder / "none", folder / "none", "no such folder"},
           {folder / "empty", folder / "empty" + "/config.json", "no such file"},
           {folder / "bare", folder / "bare", "no weights"}}) {
    cases.push_back({{"run", path, "-p", "x"}, begin, middle});
    cases.push_back({{"score", path, "--ids", file}, begin, middle});
    cases.push_back({{"inspect", path}, begin, middle});
    cases.push_back({{"bench", path}, begin, middle});
  }
  cases.push_back({{"run", file, "-p", "x"}, file, "got a file, want a model folder"});
  cases.push_back({{"score", file, "--ids", file}, file, "got a file, want a model folder"});
  cases.push_back({{"bench", file}, file, "got a file, want a model folder"});
  cases.push_back({{"inspect", file}, file});
  cases.push_back({{"inspect", kDemo + "/model.safetensors"}, kDemo + "/model.safetensors"});
  cases.push_back({{"run", no_tokenizer, "-p", "x"}, no_tokenizer + "/tokenizer.json", "no such"});
  cases.push_back(
      {{"score", no_tokenizer, "--text", file}, no_tokenizer + "/tokenizer.json", "no such"});
  cases.push_back({{"tokenize", no_tokenizer}, no_tokenizer + "/tokenizer.json", "No such"});
  cases.push_back({{"tokenize", folder / "none"}, folder / "none", "No such"});
  cases.push_back({{"tokenize", file}, file});
  Check(cases, 1);
}

TEST(InputTest, Texts) {
  const TestFolder folder;
  const std::string text = folder.Put("text", "a\xFFz");
  const std::string empty = folder.Put("empty", "");
  Check(
      {
          {{"run", kDemo, "-p", "ab\xC3"}, "-p/--prompt: ", "byte 2: got invalid UTF-8"},
          {{"run", kDemo, "-p", "-"}, "standard input: ", "byte 1: got invalid", "a\x80z"},
          {{"run", kDemo, "-p", "-"}, "standard input: ", "got no text", ""},
          {{"tokenize", kDemo}, "standard input: ", "byte 0: got invalid UTF-8", "\xED\xA0\x80"},
          {{"score", kDemo, "--text", text}, text + ": ", "byte 1: got invalid UTF-8"},
          {{"score", kDemo, "--text", "-"}, "standard input: ", "byte 1: got invalid", "a\x80z"},
          {{"score", kDemo, "--text", empty}, empty + ": got no tokens"},
          {{"score", kDemo, "--text", folder / "none"}, folder / "none", "No such file"},
          {{"score", kDemo, "--text", folder.path()}, folder.path(), "Is a directory"},
      },
      1);
}

TEST(InputTest, IdFiles) {
  const TestFolder folder;
  const std::string model = Fixture("mamba_basic");  // 50 ids
  std::vector<Case> cases;
  const auto add = [&](const std::string& content, const std::string& middle) {
    const std::string path = folder.Put("ids" + std::to_string(cases.size()), content);
    cases.push_back({{"score", model, "--ids", path}, path + ": ", middle});
  };
  add("", "got no tokens");
  add(" \n,", "got no tokens");
  add("1 2 x 4", "token 2: got \"x\"");
  add("1 -2", "token 1: got \"-2\"");
  add("1.5", "token 0: got \"1.5\"");
  add("0x1", "token 0: got \"0x1\"");
  add("99999999999", "token 0: got \"99999999999\"");
  add("1,2;3", "token 1: got \"2;3\"");
  add("49 50", "token 1: got id 50, want 0 to 49");
  add(std::string(5000, 'x'), "token 0: got \"xxx");
  add("1 \n\x1b[2J", "token 1: got \"\\x1b[2J\"");
  cases.push_back({{"score", model, "--ids", folder / "none"}, folder / "none", "No such file"});
  cases.push_back({{"tokenize", kDemo, "--decode"}, "standard input: token 1: ", "\"x\"", "1 x"});
  cases.push_back({{"tokenize", kDemo, "--decode"}, "standard input: ", "2048", "1 2048"});
  Check(cases, 1);
}

TEST(InputTest, StateFiles) {
  const TestFolder folder;
  const std::string state = folder / "state";
  ASSERT_TRUE(Done(Hognose({"run", kDemo, "-p", "Once", "-n", "4", "--state-out", state})));
  const std::string bytes = Slurp(state);
  // Another configuration makes it another model.
  std::filesystem::create_directory(folder / "other");
  for (const std::string name : {"model.safetensors", "tokenizer.json"}) {
    std::filesystem::create_symlink(kDemo + "/" + name, folder / "other/" + name);
  }
  std::string config = Slurp(kDemo + "/config.json");
  config.insert(config.find('{') + 1, "\"note\": 1, ");
  folder.Put("other/config.json", config);
  std::vector<Case> cases = {
      {{"run", folder / "other", "--state-in", state}, state + ": model: got "},
      {{"run", kDemo, "--state-in", folder / "none"}, folder / "none", "No such file"},
      {{"run", kDemo, "--state-in", folder.path()}, folder.path(), "a folder"},
      {{"run", kDemo, "--state-in", kDemo + "/model.safetensors"}, kDemo + "/model.safetensors"},
      {{"run", kDemo, "--state-in", "/dev/null"}, "/dev/null", "special file"},
  };
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    const std::string cut = folder.Put("cut" + std::to_string(size), bytes.substr(0, size));
    cases.push_back({{"run", kDemo, "--state-in", cut}, cut + ": "});
    cases.push_back({{"inspect", cut}, cut + ": "});
  }
  for (size_t at = 3; at < bytes.size(); at += bytes.size() / 23) {
    std::string damaged = bytes;
    damaged[at] ^= 4;
    const std::string path = folder.Put("damaged" + std::to_string(at), damaged);
    cases.push_back({{"run", kDemo, "--state-in", path}, path + ": "});
  }
  Check(cases, 1);
}

TEST(EnvironmentTest, Target) {
  const auto run = [](const std::string& target) {
    return Launch({.args = {"run", kDemo, "-p", "x", "-n", "3", "--temperature", "0"},
                   .environment = {"HOGNOSE_TARGET=" + target}});
  };
  EXPECT_TRUE(Fails(run("PDP11"), 2, "HOGNOSE_TARGET: got \"PDP11\", want one of", "SCALAR"));
  EXPECT_TRUE(Done(run("SCALAR")));
  EXPECT_EQ(run("SCALAR").out, run("").out);
}

TEST(WarningTest, UnknownTensors) {
  const TestFolder folder;
  const std::string source = Fixture("mamba_basic");
  // A tensor of no bytes can be added without moving the others.
  std::string bytes = Slurp(source + "/model.safetensors");
  uint64_t header = 0;
  std::copy_n(bytes.data(), sizeof(header), reinterpret_cast<char*>(&header));
  const std::string extra = R"(,"walk.weight":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  const size_t brace = bytes.rfind('}', sizeof(header) + header - 1);
  ASSERT_NE(brace, std::string::npos);
  bytes.replace(brace, sizeof(header) + header - brace, extra + "   ");
  header = brace + extra.size() + 3 - sizeof(header);
  while (header % 8 != 0) bytes.insert(sizeof(header) + header++, " ");
  std::copy_n(reinterpret_cast<const char*>(&header), sizeof(header), bytes.data());
  const std::string model = folder.path();
  folder.Put("model.safetensors", bytes);
  folder.Put("config.json", Slurp(source + "/config.json"));
  const std::string ids = folder.Put("ids", "1 2 3");
  const Outcome warned = Hognose({"score", model, "--ids", ids});
  EXPECT_TRUE(Done(warned));
  EXPECT_EQ(warned.err, model + ": walk.weight: unknown tensor, not used\n");
  EXPECT_EQ(warned.out, Hognose({"score", source, "--ids", ids}).out);
  EXPECT_TRUE(Fails(Hognose({"score", model, "--ids", ids, "--strict"}), 1, model + ": ",
                    "walk.weight: unknown tensor, want none"));
  EXPECT_TRUE(Done(Hognose({"score", source, "--ids", ids, "--strict"})));
}

}  // namespace
}  // namespace hognose::cli_test
