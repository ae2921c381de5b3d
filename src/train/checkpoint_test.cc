// A run that is resumed goes on bit for bit; what isn't its state is refused.
#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/status.h"
#include "train/test_run.h"

namespace hognose::train {
namespace {

using testing::FailsAt;
using testing::SameBits;

constexpr size_t kSteps = 5;

core::Value Settings() {
  return core::Value::Object{{"lr", 0.01},
                             {"seed", "3"},
                             {"order", "shuffled"},
                             {"clip", 1},
                             {"freeze", core::Value::Array{}}};
}

struct Variant {
  const char* name;
  const char* model;
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.0;
  Precision precision = Precision::kF32;
};

RunOptions Options(const Variant& v) {
  RunOptions o{.model = v.model};
  o.trainer.optimizer.kind = v.kind;
  o.trainer.optimizer.momentum = v.momentum;
  o.trainer.precision = o.parameters.precision = v.precision;
  o.parameters.second_moment = v.kind == OptimizerKind::kAdamW;
  o.parameters.first_moment = v.kind == OptimizerKind::kAdamW || v.momentum > 0.0;
  o.task.exact = v.precision == Precision::kF32;
  return o;
}

class ResumeTest : public ::testing::TestWithParam<Variant> {};

TEST_P(ResumeTest, AtEveryStepBitForBit) {
  const io::TestFolder files;
  const std::string data = files.Put("ids", RandomIds(1, 300, 48));
  const RunOptions o = Options(GetParam());
  TestRun whole(data, o);
  std::vector<double> losses;
  const auto path = [&](size_t step) { return files / ("state" + std::to_string(step)); };
  for (size_t step = 0;; ++step) {
    const auto saved = SaveState(path(step), whole.parameters(), whole.trainer(), Settings());
    ASSERT_TRUE(saved.ok()) << saved.message();
    if (step == kSteps) break;
    losses.push_back(whole.Step().loss);
  }
  for (size_t step = 0; step <= kSteps; ++step) {
    RunOptions other = o;
    other.threads = 1 + step % 3;
    TestRun run(data, other);
    const auto loaded = LoadState(path(step), run.parameters(), run.trainer(), Settings());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    ASSERT_TRUE(run.trainer().Bind().ok());
    ASSERT_EQ(run.trainer().step(), step);
    for (size_t next = step; next < kSteps; ++next) EXPECT_EQ(run.Step().loss, losses[next]);
    EXPECT_TRUE(SameBits(run.Values(), whole.Values())) << step;
    EXPECT_EQ(run.trainer().updates(), whole.trainer().updates());
    ASSERT_TRUE(SaveState(files / "again", run.parameters(), run.trainer(), Settings()).ok());
    EXPECT_EQ(io::Slurp(files / "again"), io::Slurp(path(kSteps))) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, ResumeTest,
    ::testing::Values(Variant{"AdamW", "mamba2_basic"}, Variant{"Mamba", "mamba_basic"},
                      Variant{"Falcon", "falcon_mamba_basic"},
                      Variant{"Sgd", "mamba2_basic", OptimizerKind::kSgd},
                      Variant{"Momentum", "mamba2_basic", OptimizerKind::kSgd, 0.9},
                      Variant{"BF16", "mamba2_bf16", OptimizerKind::kAdamW, 0.0, Precision::kBF16},
                      Variant{"F16", "mamba2_f16", OptimizerKind::kAdamW, 0.0, Precision::kF16}),
    [](const auto& info) { return std::string(info.param.name); });

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() {
    run_.Losses(2);
    EXPECT_TRUE(SaveState(path_, run_.parameters(), run_.trainer(), Settings()).ok());
    saved_ = run_.Values();
    run_.Losses(1);
    values_ = run_.Values();
  }
  core::Status Load(const core::Value& settings = Settings()) {
    return LoadState(path_, run_.parameters(), run_.trainer(), settings);
  }
  // The file as it is was refused, and nothing changed.
  ::testing::AssertionResult Refused(std::initializer_list<std::string_view> words,
                                     const core::Value& settings = Settings()) {
    const core::Status status = Load(settings);
    if (!SameBits(run_.Values(), values_)) return ::testing::AssertionFailure() << "values changed";
    if (run_.trainer().step() != 3) return ::testing::AssertionFailure() << "the step changed";
    return FailsAt(status, path_, words);
  }

  const io::TestFolder files_;
  const std::string data_ = files_.Put("ids", RandomIds(1, 300, 48));
  const std::string path_ = files_ / "state";
  TestRun run_{data_, Options({"", "mamba2_basic"})};
  std::vector<float> saved_, values_;
};

TEST_F(StateFileTest, ADamagedByteIsSeen) {
  const std::string good = io::Slurp(path_);
  uint64_t header = 0;
  std::copy_n(good.data(), 8, reinterpret_cast<char*>(&header));
  size_t refused = 0, harmless = 0;
  // A part of the bytes, with every bit in turn: each of the body's is in the checksum alike.
  size_t bit = 0;
  for (size_t i = 0; i < good.size(); i += i < 8 + header ? 1 + i / 100 % 13 : 4999) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (bit++ % 8)));
    files_.Put("state", bad);
    if (const core::Status status = Load(); !status.ok()) {
      ASSERT_TRUE(status.message().starts_with(path_)) << status.message();
      ASSERT_EQ(run_.trainer().step(), 3u) << i;
      ++refused;
      continue;
    }
    // Blanks of JSON, or letters of an escape: what was read is what was saved.
    ++harmless;
    ASSERT_TRUE(SameBits(run_.Values(), saved_)) << i;
    ASSERT_EQ(run_.trainer().step(), 2u) << i;
    ASSERT_EQ(run_.trainer().updates(), 2u) << i;
    run_.trainer().Restore(3, 3, {});
    std::copy(values_.begin(), values_.end(), run_.parameters().values().data);
  }
  EXPECT_GT(refused, 500u);
  EXPECT_LT(harmless, 20u);
}

TEST_F(StateFileTest, ACutFileIsSeen) {
  const std::string good = io::Slurp(path_);
  for (size_t size = 0; size < good.size(); size += 1 + good.size() / 97) {
    files_.Put("state", std::string_view(good).substr(0, size));
    EXPECT_TRUE(Refused({})) << size;
  }
  files_.Put("state", good + "x");
  EXPECT_TRUE(Refused({}));
  std::filesystem::remove(path_);
  EXPECT_TRUE(Refused({"No such file"}));
}

TEST_F(StateFileTest, ForeignFiles) {
  files_.Put("state", io::Slurp(FixturePath("mamba2_basic") + "/model.safetensors"));
  EXPECT_TRUE(Refused({": version: got nothing, want 1"}));
  // Of another model, of another optimiser, and of a run that trained more.
  TestRun other(data_, Options({"", "mamba2_groups_4"}));
  ASSERT_TRUE(SaveState(path_, other.parameters(), other.trainer(), Settings()).ok());
  EXPECT_TRUE(Refused({".mixer.", "got f32 [", "want f32 ["}));
  TestRun sgd(data_, Options({"", "mamba2_basic", OptimizerKind::kSgd}));
  ASSERT_TRUE(SaveState(path_, sgd.parameters(), sgd.trainer(), Settings()).ok());
  EXPECT_TRUE(Refused({": m.backbone.", "got nothing, want f32 ["}));
  RunOptions o = Options({"", "mamba2_basic"});
  o.parameters.frozen = [](std::string_view name) { return name.ends_with("A_log"); };
  TestRun frozen(data_, o);
  ASSERT_TRUE(SaveState(path_, run_.parameters(), run_.trainer(), Settings()).ok());
  const auto status = LoadState(path_, frozen.parameters(), frozen.trainer(), Settings());
  EXPECT_TRUE(FailsAt(status, path_, {"A_log: got f32 [4], want no such tensor"}));
}

TEST_F(StateFileTest, OtherSettingsAreNamed) {
  const core::Value settings = Settings();
  for (const auto& [name, value] : *settings.AsObject()) {
    core::Value other = settings;
    for (auto& [n, v] : *other.AsObject()) {
      if (n == name) v = "another";
    }
    EXPECT_TRUE(Refused({": " + name + ": got ", " when the run began, \"another\" now"}, other));
  }
  core::Value more = settings;
  more.AsObject()->emplace_back("warmup", 3);
  EXPECT_TRUE(Refused({": warmup: got nothing when the run began, 3 now"}, more));
}

TEST(SaveTest, ModelAndGradientsAreWhatTheyAre) {
  const io::TestFolder files;
  RunOptions o{.model = "mamba_untied"};
  o.parameters.frozen = [](std::string_view name) { return name == "lm_head.weight"; };
  TestRun run(files.Put("ids", RandomIds(1, 300, 48)), o);
  run.Losses(1);
  ASSERT_TRUE(SaveModel(files / "model", run.parameters()).ok());
  ASSERT_TRUE(SaveGradients(files / "gradients", run.parameters(), 0.5f).ok());
  const auto model = io::SafetensorsFile::Open(files / "model");
  const auto gradients = io::SafetensorsFile::Open(files / "gradients");
  ASSERT_TRUE(model.ok() && gradients.ok());
  EXPECT_EQ(model->tensors().size(), run.folder().tensors.size());
  EXPECT_EQ(gradients->tensors().size(), run.folder().tensors.size() - 1);
  for (const Parameter& p : run.parameters().trained()) {
    const auto& saved = model->tensors().at(p.name);
    EXPECT_EQ(core::ToString(saved), core::ToString(p.view));
    EXPECT_TRUE(
        SameBits({saved.As<float>(), saved.elements()}, {p.view.As<float>(), p.view.elements()}));
    std::vector<float> want;
    for (const float g : run.parameters().gradient(p).span()) want.push_back(g * 0.5f);
    const auto& got = gradients->tensors().at(p.name);
    EXPECT_TRUE(SameBits({got.As<float>(), got.elements()}, want)) << p.name;
  }
}

}  // namespace
}  // namespace hognose::train
