// Closed pipes, full disks, Ctrl-C, places: what a shell does to a command.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;

const std::string kPrompt = "The old house";

// A run that ends only when it is stopped.
std::vector<std::string> Endless(std::vector<std::string> more) {
  std::vector<std::string> args = {"run", kDemo,          "-p", kPrompt,    "--temperature",
                                   "0",   "--ignore-eos", "-n", "100000000"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

std::string Greedy(size_t tokens) {
  return Hognose({"run", kDemo, "-p", kPrompt, "--temperature", "0", "--ignore-eos", "-n",
                  std::to_string(tokens)})
      .out;
}

TEST(PipeTest, AReaderThatLeavesEndsTheCommandQuietly) {
  const Outcome run = Launch({.args = Endless({}), .leave_after = 40});
  EXPECT_TRUE(Done(run));
  EXPECT_EQ(run.err, "");
  const Outcome gone = Launch({.args = {"inspect", kDemo}, .leave_after = 0});
  EXPECT_TRUE(Done(gone));
  EXPECT_EQ(gone.err, "");
  std::string text;
  while (text.size() < 400000) text += "word ";
  const Outcome ids = Launch({.args = {"tokenize", kDemo}, .input = text, .leave_after = 10});
  EXPECT_TRUE(Done(ids));
  EXPECT_EQ(ids.err, "");
}

TEST(PipeTest, TheStateIsWrittenThen) {
  const TestFolder folder;
  const std::string state = folder / "state";
  EXPECT_TRUE(Done(Launch({.args = Endless({"--state-out", state}), .leave_after = 40})));
  EXPECT_TRUE(Done(Hognose({"inspect", state})));
}

TEST(FullDiskTest, StandardOutput) {
  const TestFolder folder;
  const std::string ids = folder.Put("ids", "1 2 3");
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           Endless({}),
           {"run", kDemo, "-p", "x", "-n", "3", "--json"},
           {"score", kDemo, "--ids", ids},
           {"tokenize", kDemo},
           {"inspect", kDemo},
           {"inspect", kDemo, "--json"},
           {"bench", Fixture("mamba_basic"), "--prompt", "4", "--generate", "3", "--json"},
           {"--help"},
           {"run", "--help"},
           {"--version"}}) {
    SCOPED_TRACE(args[0]);
    const Outcome o = Launch({.args = args, .input = "x", .output_path = "/dev/full"});
    if (args[0] == "bench") {  // its facts of the machine come before any row
      EXPECT_EQ(o.code, 1);
      EXPECT_TRUE(o.err.ends_with("\nstandard output: No space left on device\n")) << o.err;
    } else {
      EXPECT_TRUE(Fails(o, 1, "standard output: No space left on device"));
    }
    const Outcome closed = Launch({.args = args, .input = "x", .output_closed = true});
    EXPECT_EQ(closed.code, 1) << Describe(closed);
    EXPECT_NE(closed.err.find("standard output: "), std::string::npos) << closed.err;
  }
}

// A disk that is full in the middle of a file, a folder that can't be written, and none at all.
class NoFileTest : public ::testing::Test {
 protected:
  NoFileTest() {
    fs::create_directory(folder_ / "out");
    old_ = folder_.Put("out/file", "old");
    ids_ = folder_.Put("ids", "1 2 3 4 5 6 7 8 9");
    state_args_ = {"run", kDemo, "-p", "x", "-n", "3", "--state-out"};
    logits_args_ = {"score", kDemo, "--ids", ids_, "--logits"};
  }
  ~NoFileTest() override { chmod((folder_ / "out").c_str(), 0755); }

  void Check(const std::vector<std::string>& args, const std::string& path, Request request,
             const std::string& why) {
    request.args = args;
    request.args.push_back(path);
    SCOPED_TRACE(path);
    EXPECT_TRUE(Fails(Launch(request), 1, path + ": ", why));
    EXPECT_EQ(Slurp(old_), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out"), {}), 1);
  }

  TestFolder folder_;
  std::string old_, ids_;
  std::vector<std::string> state_args_, logits_args_;
};

TEST_F(NoFileTest, TheDiskIsFull) {
  for (const auto& args : {state_args_, logits_args_}) {
    for (const std::string& path : {old_, folder_ / "out/new"}) {
      Check(args, path, {.max_file_bytes = 4096}, "could not write: File too large");
      Check(args, path, {.max_file_bytes = 0}, "could not write: File too large");
    }
    Check(args, "/dev/full", {}, "could not write: No space left on device");
  }
}

TEST_F(NoFileTest, TheFolderIsReadOnly) {
  ASSERT_EQ(chmod((folder_ / "out").c_str(), 0555), 0);
  for (const auto& args : {state_args_, logits_args_}) {
    for (const std::string& path : {old_, folder_ / "out/new"}) {
      Check(args, path, {.obey_permissions = true}, "could not write: Permission denied");
    }
  }
}

TEST_F(NoFileTest, ThePlaceIsNone) {
  for (const auto& args : {state_args_, logits_args_}) {
    Check(args, folder_ / "none/new", {}, "could not write: No such file or directory");
    Check(args, folder_ / "out", {}, "got a folder, want a file to write");
    Check(args, old_ + "/new", {}, "could not write: Not a directory");
  }
}

// A state that can't be written is told before the work.
TEST_F(NoFileTest, IsToldEarly) {
  const Outcome o = Hognose(Endless({"--state-out", folder_ / "none/new"}));
  EXPECT_TRUE(Fails(o, 1, folder_ / "none/new", "No such file or directory"));
  EXPECT_EQ(o.out, "");
}

TEST(InterruptTest, AfterTheFirstWords) {
  const TestFolder folder;
  const std::string state = folder / "state";
  const auto spoke = [](const Outcome& o) { return o.out.size() > 60; };
  const Outcome o = Launch({.args = Endless({"--state-out", state}), .interrupt = spoke});
  EXPECT_EQ(o.code, 130) << Describe(o);
  EXPECT_GT(o.out.size(), 60u);
  EXPECT_TRUE(o.err.starts_with("prompt: ")) << o.err;
  EXPECT_EQ(folder.CountFiles(), 1u);
  // The state covers just what was printed.
  const double position = Number(Json(Hognose({"inspect", state, "--json"})), "position");
  const Outcome next = Hognose(
      {"run", kDemo, "--state-in", state, "--temperature", "0", "--ignore-eos", "-n", "10"});
  EXPECT_TRUE(Done(next));
  EXPECT_TRUE(Greedy(static_cast<size_t>(position) + 10).starts_with(o.out + next.out));
}

TEST(InterruptTest, Json) {
  if (!HaveTerminals()) return;
  std::string text;
  while (text.size() < 2000000) text += "and on and on ";
  // The bar tells that the prompt is being fed.
  const auto begun = [](const Outcome& o) { return o.err.find("prompt [") != std::string::npos; };
  const Outcome o = Launch({.args = {"run", kDemo, "-p", "-", "-n", "100000000", "--json"},
                            .input = text,
                            .terminal = true,
                            .interrupt = begun});
  EXPECT_EQ(o.code, 130) << Describe(o);
  const auto value = io::ParseJson(o.out, "output");
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(Text(*value, "stop_reason"), "interrupted");
  EXPECT_EQ(Number(*value, "tokens"), 0.0);
}

TEST(InterruptTest, InALongPrompt) {
  if (!HaveTerminals()) return;
  const TestFolder folder;
  const std::string state = folder / "state";
  std::string text;
  while (text.size() < 2000000) text += "and on and on ";
  const Outcome o = Launch({.args = {"run", kDemo, "-p", "-", "-n", "10", "--state-out", state},
                            .input = text,
                            .terminal = true,  // the bar tells that the prompt is being fed
                            .interrupt = [](const Outcome& so_far) {
                              return so_far.err.find("prompt [") != std::string::npos;
                            }});
  EXPECT_EQ(o.code, 130) << Describe(o);
  EXPECT_EQ(o.out, "");
  const core::Value value = Json(Hognose({"inspect", state, "--json"}));
  EXPECT_GT(Number(value, "position"), 0.0);
  EXPECT_LT(Number(value, "position"), 400000.0);
  EXPECT_EQ(folder.CountFiles(), 1u);
  EXPECT_TRUE(Done(Hognose({"run", kDemo, "--state-in", state, "-n", "3"})));
}

TEST(InterruptTest, ScoreLeavesTheOldFile) {
  if (!HaveTerminals()) return;
  const TestFolder folder;
  const std::string old = folder.Put("logits", "old");
  std::string ids;
  for (int i = 0; i < 100000; ++i) ids += "7 ";
  const Outcome o = Launch({.args = {"score", kDemo, "--ids", "-", "--logits", old},
                            .input = ids,
                            .terminal = true,
                            .interrupt = [](const Outcome& so_far) {
                              return so_far.err.find("score [") != std::string::npos;
                            }});
  EXPECT_EQ(o.code, 130) << Describe(o);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(Slurp(old), "old");
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(InterruptTest, EveryOtherCommand) {
  const Outcome o =
      Launch({.args = {"bench", kDemo, "--generate", "10000000"},
              .interrupt = [](const Outcome& so_far) { return !so_far.out.empty(); }});
  EXPECT_EQ(o.code, 130) << Describe(o);
}

TEST(EnvironmentTest, LangIsNothing) {
  const std::vector<std::string> args = {
      "run", kDemo, "-p", "caf\u00E9 \U0001F600", "-n", "9", "--temperature", "0", "--echo"};
  const Outcome unset = Launch({.args = args});
  EXPECT_TRUE(Done(unset));
  for (const std::string lang : {"C", "de_DE.UTF-8", "none"}) {
    EXPECT_EQ(Launch({.args = args, .environment = {"LANG=" + lang, "LC_ALL=" + lang}}).out,
              unset.out);
  }
}

// The bundled model: beside a build folder, in an install prefix, through links, from anywhere.
TEST(PlaceTest, TheBundledModelIsFound) {
  const TestFolder folder;
  const auto install = [&](const std::string& bin, const std::string& models) {
    fs::create_directories(folder / bin);
    fs::create_directories(folder / models);
    fs::copy_file(HOGNOSE_EXECUTABLE, folder / bin + "/hognose");
    fs::create_directory_symlink(kDemo, folder / models + "/demo");
    return folder / bin + "/hognose";
  };
  const std::string want = Hognose({"run", kDemo, "-p", kPrompt, "-n", "9", "--seed", "2"}).out;
  for (const std::string& program :
       {install("tree/build", "tree/models"), install("usr/bin", "usr/share/hognose/models")}) {
    const std::string link = program + "-link";
    fs::create_symlink(program, link);
    fs::create_symlink(fs::path(link).filename(), link + "2");
    for (const std::string& name : {program, link, link + "2"}) {
      for (const std::string place : {"/", "/proc/self", folder.path().c_str()}) {
        const Outcome o = Launch({.program = name,
                                  .args = {"run", "-p", kPrompt, "-n", "9", "--seed", "2"},
                                  .folder = place});
        EXPECT_TRUE(Done(o));
        EXPECT_EQ(o.out, want);
      }
    }
    EXPECT_TRUE(Done(Launch({.program = program, .args = {"inspect"}})));
    EXPECT_TRUE(Done(Launch({.program = program, .args = {"tokenize"}, .input = "x"})));
  }
}

TEST(PlaceTest, PathsAreOfTheWorkingFolder) {
  const TestFolder folder;
  folder.Put("ids", "1 2 3");
  fs::create_directory_symlink(Fixture("mamba_basic"), folder / "model");
  const Outcome o = Launch(
      {.args = {"score", "model", "--ids", "ids", "--logits", "out.npy"}, .folder = folder.path()});
  EXPECT_TRUE(Done(o));
  EXPECT_TRUE(fs::exists(folder / "out.npy"));
}

TEST(TerminalTest, TheBarIsOnlyThere) {
  if (!HaveTerminals()) return;
  std::string text;
  while (text.size() < 20000) text += "on and on ";
  const std::vector<std::string> args = {"run", kDemo, "-p", text, "-n", "3"};
  const Outcome terminal = Launch({.args = args, .terminal = true});
  EXPECT_TRUE(Done(terminal));
  EXPECT_NE(terminal.err.find("prompt ["), std::string::npos);
  EXPECT_EQ(Launch({.args = args}).err.find("prompt ["), std::string::npos);
}

}  // namespace
}  // namespace hognose::cli_test
