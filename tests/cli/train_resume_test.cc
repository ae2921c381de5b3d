// hognose train: kill -9, Ctrl-C, full disks: the last checkpoint is whole, and --resume goes on as
// if nothing had happened.
#include <chrono>
#include <filesystem>

#include "tests/cli/train_util.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ResumeTest : public TrainTest {
 protected:
  ResumeTest() { flags_ = {"--steps", "150", "--save-every", "10", "--log", log_, "--lr", "0.01"}; }
  Arguments Resume(const Arguments& more = {}) const {
    Arguments args = Tiny(flags_);
    args.push_back("--resume");
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  size_t Lines() const {
    const std::string text = Slurp(log_);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  // Starts, or goes on, and ends by the signal once `when` says so.
  Outcome EndBy(int signal, const Arguments& args, const std::function<bool()>& when) const {
    return Launch({.args = args,
                   .interrupt = [&](const Outcome&) { return when(); },
                   .interrupt_signal = signal});
  }
  size_t SavedStep() const {
    const auto state = io::SafetensorsFile::Open(out_ + "/training_state.safetensors");
    EXPECT_TRUE(state.ok()) << state.status().message();
    return state.ok() ? std::stoul(state->metadata().at("step")) : 0;
  }

  Arguments flags_;
};

TEST_F(ResumeTest, AfterKillsAtRandomMoments) {
  const auto start = Clock::now();
  ASSERT_TRUE(Done(Train(flags_)));
  const double whole = SecondsSince(start);
  const auto want = Result();
  const auto losses = Losses(log_);
  const std::string curve = Slurp(out_ + "/loss.svg");
  core::Rng rng(static_cast<uint64_t>(start.time_since_epoch().count()));
  size_t kills = 0;
  for (int round = 0; round < 3; ++round) {
    Remove();
    for (int i = 0; i < 4; ++i) {
      const double limit = rng.Uniform(0.0, 0.7 * whole);
      const auto begin = Clock::now();
      const Outcome o = EndBy(SIGKILL, fs::exists(out_) ? Resume() : Tiny(flags_),
                              [&] { return SecondsSince(begin) > limit; });
      if (o.code == 0) break;
      ASSERT_EQ(o.code, -SIGKILL) << Describe(o) << limit;
      ++kills;
      // What is there is always a model.
      EXPECT_TRUE(!fs::exists(out_) || Done(Hognose({"score", out_, "--ids", data_})));
    }
    ASSERT_TRUE(Done(Hognose(fs::exists(out_) ? Resume() : Tiny(flags_))));
    EXPECT_TRUE(Result() == want);
    EXPECT_EQ(Losses(log_), losses);
    EXPECT_EQ(Slurp(out_ + "/loss.svg"), curve);
  }
  EXPECT_GT(kills, 0u);
}

TEST_F(ResumeTest, AfterCtrlC) {
  ASSERT_TRUE(Done(Train(flags_)));
  const auto want = Result();
  const auto losses = Losses(log_);
  Remove();
  fs::remove(log_);
  flags_[3] = "0";  // no checkpoints but the last
  for (int i = 0; i < 2; ++i) {
    const size_t lines = Lines() + 4;
    const Outcome o =
        EndBy(SIGINT, i == 0 ? Tiny(flags_) : Resume(), [&] { return Lines() >= lines; });
    ASSERT_EQ(o.code, 130) << Describe(o);
    // The step that was at work is finished, logged and saved, and nothing else lies about.
    EXPECT_EQ(SavedStep(), Lines());
    EXPECT_GE(SavedStep(), lines);
    EXPECT_LT(SavedStep(), 150u);
    EXPECT_EQ(folder_.CountFiles(), 3u);
    EXPECT_EQ(Contents(out_).size(), 4u);
    EXPECT_TRUE(o.out.starts_with("step " + std::to_string(SavedStep()) + ": ")) << o.out;
  }
  ASSERT_TRUE(Done(Hognose(Resume({"-t", "2"}))));
  EXPECT_TRUE(Result() == want);
  EXPECT_EQ(Losses(log_), losses);
}

TEST_F(ResumeTest, AFullDiskLeavesTheOldCheckpoint) {
  const Outcome o = EndBy(SIGINT, Tiny(flags_), [&] { return Lines() >= 5; });
  ASSERT_EQ(o.code, 130) << Describe(o);
  const auto old = Contents(out_);
  const std::string log = Slurp(log_);
  const rlim_t state = fs::file_size(out_ + "/training_state.safetensors");
  const rlim_t model = fs::file_size(out_ + "/model.safetensors");
  ASSERT_LT(model, state);
  for (const rlim_t limit : {model, state / 2, state - 1}) {
    ASSERT_GT(limit, log.size());
    const Outcome full = Launch({.args = Resume({"--save-every", "2"}), .max_file_bytes = limit});
    EXPECT_EQ(full.code, 1) << Describe(full);
    const std::string line = full.err.substr(full.err.rfind('\n', full.err.size() - 2) + 1);
    EXPECT_EQ(line, out_ + "/training_state.safetensors: could not write: File too large\n");
    EXPECT_TRUE(Contents(out_) == old);
    EXPECT_EQ(folder_.CountFiles(), 3u);
  }
  ASSERT_TRUE(Done(Hognose(Resume())));
  const auto resumed = Result();
  Remove();
  ASSERT_TRUE(Done(Train(flags_)));
  EXPECT_TRUE(Result() == resumed);
}

TEST_F(ResumeTest, AFullDiskAtTheBeginning) {
  ASSERT_TRUE(Done(Train()));
  const auto old = Contents(out_);
  const rlim_t model = fs::file_size(out_ + "/model.safetensors");
  for (const std::string& out : {out_, folder_ / "new"}) {
    for (const auto& [limit, name] : std::vector<std::pair<rlim_t, std::string>>{
             {0, "config.json"},
             {model / 2, "model.safetensors"},
             {model + 1000, "training_state.safetensors"}}) {
      const Outcome o = Launch({.args = Tiny({"--out", out, "--force"}), .max_file_bytes = limit});
      EXPECT_TRUE(Fails(o, 1, out + "/" + name + ": could not write: File too large"));
      EXPECT_TRUE(Contents(out_) == old);
      EXPECT_EQ(folder_.CountFiles(), 2u);
    }
  }
  // The log alone: its place is on another disk, perhaps.
  const Outcome o = Train({"--force", "--log", "/dev/full"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(o.err.ends_with("/dev/full: could not write: No space left on device\n")) << o.err;
}

TEST_F(ResumeTest, OtherFlagsAreRefusedByName) {
  const Outcome o = EndBy(SIGINT, Tiny(flags_), [&] { return Lines() >= 3; });
  ASSERT_EQ(o.code, 130) << Describe(o);
  const auto old = Contents(out_);
  const std::string log = Slurp(log_);
  const std::string state = out_ + "/training_state.safetensors: ";
  const std::string other = folder_.Put("other", JoinIds(SomeIds(400, 48, 2)));
  const std::string large = folder_.Put("large", JoinIds(SomeIds(5000)));
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--lr", "0.02"}, "lr: got 0.01 when the run began, 0.02 now, want the same"},
      {{"--steps", "200"}, "steps: got 150"},
      {{"--seed", "1"}, "seed: got \"0\""},
      {{"--batch-size", "3"}, "batch-size: got 2"},
      {{"--sequence-length", "8"}, "sequence-length: got 16"},
      {{"--accumulate", "2"}, "accumulate: got 1"},
      {{"--order", "sequential", "--data", large}, "order: got \"shuffled\""},
      {{"--optimizer", "sgd"}, "optimizer: got \"adamw\""},
      {{"--schedule", "constant"}, "schedule: got \"cosine\""},
      {{"--min-lr", "0.001"}, "min-lr: got 0"},
      {{"--warmup", "1"}, "warmup: got 0"},
      {{"--weight-decay", "0"}, "weight-decay: got 0.1"},
      {{"--beta1", "0.8"}, "beta1: got 0.9"},
      {{"--beta2", "0.9"}, "beta2: got 0.95"},
      {{"--eps", "1e-6"}, "eps: got "},
      {{"--momentum", "0.5"}, "momentum: got 0"},
      {{"--clip", "2"}, "clip: got 1"},
      {{"--precision", "bf16"}, "precision: got \"f32\""},
      {{"--freeze", "norm"}, "freeze: got []"},
      {{"--time-step-limit", "0.01,1"}, "time-step-limit: got \"\""},
      {{"--data", other}, "data: got \""},
  };
  for (const auto& [more, begin] : cases) {
    EXPECT_TRUE(Fails(Hognose(Resume(more)), 1, state + begin)) << begin;
    EXPECT_TRUE(Contents(out_) == old) << begin;
    EXPECT_EQ(Slurp(log_), log) << begin;
  }
  // The same tokens in another file are the same data.
  const std::string copy = folder_.Put("copy", "\n" + Slurp(data_));
  ASSERT_TRUE(Done(Hognose(Resume({"--data", copy, "--checkpoint", "layer"}))));
}

// Killed behind the last state, before the model was written: nothing is trained again.
TEST_F(ResumeTest, WhatIsDoneIsOnlyWritten) {
  ASSERT_TRUE(Done(Train(flags_)));
  const auto want = Contents(out_);
  const std::string log = Slurp(log_);
  folder_.Put("out/model.safetensors", Slurp(out_ + "/training_state.safetensors"));
  EXPECT_TRUE(Fails(Hognose(Resume()), 1, out_ + "/"));
  ASSERT_TRUE(Done(Hognose(Tiny({"--out", folder_ / "first", "--steps", "1"}))));
  folder_.Put("out/model.safetensors", Slurp(folder_ / "first/model.safetensors"));
  const Outcome o = Hognose(Resume({"--eval", data_}));
  ASSERT_TRUE(Done(o));
  EXPECT_TRUE(o.out.starts_with("step 150, held-out loss ")) << o.out;
  for (const auto& [name, bytes] : want) {
    // The held-out loss is in the curve too now.
    EXPECT_TRUE(name == "loss.svg" || Slurp(out_ + "/" + name) == bytes) << name;
  }
  EXPECT_EQ(Slurp(log_), log);
}

TEST_F(ResumeTest, WithoutARun) {
  EXPECT_TRUE(Fails(Hognose(Resume()), 1, out_ + ": got no training_state.safetensors"));
  EXPECT_FALSE(fs::exists(out_));
  // A model is no run.
  fs::copy(Fixture("mamba2_basic"), out_);
  EXPECT_TRUE(Fails(Hognose(Resume()), 1, out_ + ": got no training_state.safetensors"));
  folder_.Put("out/training_state.safetensors", "x");
  EXPECT_TRUE(Fails(Hognose(Resume()), 1, out_ + "/training_state.safetensors: "));
  folder_.Put("out/training_state.safetensors", Slurp(out_ + "/model.safetensors"));
  EXPECT_TRUE(Fails(Hognose(Resume()), 1, out_ + "/training_state.safetensors: version: "));
}

}  // namespace
}  // namespace hognose::cli_test
