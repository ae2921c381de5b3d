#include "train/new_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/registry.h"
#include "tests/support/compare.h"
#include "tests/support/status.h"

namespace hognose::train {
namespace {

using testing::SameBits;

core::Value Config(const ModelSizes& sizes, bool tied = true) {
  auto config = MakeConfig(sizes);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return With(*config, {{"vocab_size", 40}, {"tie_word_embeddings", tied}});
}

NewTensors Make(const core::Value& config, uint64_t seed = 1) {
  auto tensors = InitialTensors(config, "flags", seed);
  EXPECT_TRUE(tensors.ok()) << tensors.status().message();
  return std::move(*tensors);
}

std::span<const float> Values(const NewTensors& made, const std::string& name) {
  const auto it = made.tensors.find(name);
  if (it == made.tensors.end()) {
    ADD_FAILURE() << name;
    return {};
  }
  return {it->second.As<float>(), it->second.elements()};
}

const ModelSizes kMamba{.architecture = "mamba", .width = 24, .layers = 3, .states = 5};
const ModelSizes kMamba2{
    .architecture = "mamba2", .width = 24, .layers = 3, .states = 6, .head_dim = 8, .groups = 2};

TEST(InitialTensorsTest, MakeAModel) {
  for (ModelSizes sizes : {kMamba, kMamba2}) {
    for (const bool tied : {true, false}) {
      for (const size_t taps : {2, 4}) {
        sizes.taps = taps;
        const core::Value config = Config(sizes, tied);
        const NewTensors made = Make(config);
        const auto model = models::Build({config, "flags", made.tensors, "new"});
        ASSERT_TRUE(model.ok()) << model.status().message();
        EXPECT_TRUE(model->unknown_tensors.empty()) << model->unknown_tensors.front();
        EXPECT_EQ(made.tensors.contains("lm_head.weight"), !tied);
        EXPECT_EQ(model->vocab, 40u);
      }
    }
  }
}

TEST(InitialTensorsTest, FalconMambaToo) {
  const core::Value config =
      With(Config(kMamba),
           {{"model_type", "falcon_mamba"},
            {"architectures", core::Value::Array{core::Value("FalconMambaForCausalLM")}}});
  const NewTensors made = Make(config);
  const auto model = models::Build({config, "flags", made.tensors, "new"});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(model->unknown_tensors.empty());
}

// Every value lies in [low, high], and the values' mean is that of the uniform distribution there:
// its deviation is (high - low) / sqrt(12 n), and six of them are never left.
void ExpectUniform(std::vector<double> values, double low, double high, const std::string& name) {
  ASSERT_GT(values.size(), 30u) << name;
  double sum = 0.0;
  for (const double x : values) {
    ASSERT_GE(x, low) << name;
    ASSERT_LE(x, high) << name;
    sum += x;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, (low + high) / 2, 6 * (high - low) / std::sqrt(12 * n)) << name;
  // So are the quarters: a count is n / 4 with a deviation of sqrt(3 n) / 4.
  for (int quarter = 0; quarter < 4; ++quarter) {
    const double from = low + (high - low) * quarter / 4, to = from + (high - low) / 4;
    const auto count =
        std::count_if(values.begin(), values.end(), [&](double x) { return x >= from && x < to; });
    EXPECT_NEAR(static_cast<double>(count), n / 4, 6 * std::sqrt(3 * n) / 4 + 1) << name;
  }
}

std::vector<double> Doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

std::vector<double> TimeSteps(std::span<const float> bias) {
  std::vector<double> logs;
  for (const float b : bias) logs.push_back(std::log(std::log1p(std::exp(b))));
  return logs;
}

// f32 values of what is drawn in f64 leave the interval by half an eps of their size at most.
constexpr double kSlack = 1e-6;

TEST(InitialTensorsTest, DistributionsOfMamba) {
  const ModelSizes sizes{.architecture = "mamba", .width = 64, .layers = 4, .states = 16};
  const NewTensors made = Make(Config(sizes));
  const double e = 128.0;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string mixer = "backbone.layers." + std::to_string(layer) + ".mixer.";
    const auto a_log = Values(made, mixer + "A_log");
    for (size_t i = 0; i < a_log.size(); ++i) {
      ASSERT_EQ(a_log[i], static_cast<float>(std::log(static_cast<double>(i % 16 + 1))));
    }
    ExpectUniform(TimeSteps(Values(made, mixer + "dt_proj.bias")), std::log(0.001) - kSlack,
                  std::log(0.1) + kSlack, "dt");
    const double out = 1.0 / std::sqrt(e) / std::sqrt(4.0);
    ExpectUniform(Doubles(Values(made, mixer + "out_proj.weight")), -out - kSlack, out + kSlack,
                  "out_proj");
    const double in = 1.0 / std::sqrt(64.0);
    ExpectUniform(Doubles(Values(made, mixer + "in_proj.weight")), -in - kSlack, in + kSlack,
                  "in_proj");
    ExpectUniform(Doubles(Values(made, mixer + "conv1d.weight")), -0.5 - kSlack, 0.5 + kSlack,
                  "conv1d");
    for (const float d : Values(made, mixer + "D")) ASSERT_EQ(d, 1.0f);
  }
}

TEST(InitialTensorsTest, DistributionsOfMamba2) {
  const ModelSizes sizes{
      .architecture = "mamba2", .width = 64, .layers = 9, .states = 8, .head_dim = 2};
  const NewTensors made = Make(Config(sizes));  // 64 heads
  for (int layer = 0; layer < 9; ++layer) {
    const std::string mixer = "backbone.layers." + std::to_string(layer) + ".mixer.";
    std::vector<double> a;
    for (const float x : Values(made, mixer + "A_log")) a.push_back(std::exp(x));
    ExpectUniform(a, 1.0 - kSlack, 16.0 + 16 * kSlack, "A");
    ExpectUniform(TimeSteps(Values(made, mixer + "dt_bias")), std::log(0.001) - kSlack,
                  std::log(0.1) + kSlack, "dt");
    const double out = 1.0 / std::sqrt(128.0) / 3.0;
    ExpectUniform(Doubles(Values(made, mixer + "out_proj.weight")), -out - kSlack, out + kSlack,
                  "out_proj");
    for (const float w : Values(made, mixer + "norm.weight")) ASSERT_EQ(w, 1.0f);
  }
  // Normal, of deviation 0.02: the mean square of n values is off by sqrt(2 / n) of itself.
  const auto embedding = Values(made, "backbone.embeddings.weight");
  double squares = 0.0;
  for (const float x : embedding) squares += static_cast<double>(x) * x;
  const auto n = static_cast<double>(embedding.size());
  EXPECT_NEAR(squares / n / 0.0004, 1.0, 6 * std::sqrt(2 / n));
}

TEST(InitialTensorsTest, TheSeedIsEverything) {
  for (const ModelSizes& sizes : {kMamba, kMamba2}) {
    const core::Value config = Config(sizes);
    const NewTensors one = Make(config, 7), same = Make(config, 7), other = Make(config, 8);
    size_t differ = 0;
    for (const auto& [name, tensor] : one.tensors) {
      EXPECT_TRUE(SameBits(Values(one, name), Values(same, name))) << name;
      differ += !SameBits(Values(one, name), Values(other, name));
    }
    // All but the constants: norms, D, and A_log of Mamba.
    EXPECT_GE(differ, 3u * 4);
    // Layers aren't copies of each other.
    const std::string in = ".mixer.in_proj.weight";
    EXPECT_FALSE(
        SameBits(Values(one, "backbone.layers.0" + in), Values(one, "backbone.layers.1" + in)));
    // One layer more changes no other tensor but out_proj, which is divided by their number.
    ModelSizes more = sizes;
    more.layers = 4;
    const NewTensors longer = Make(Config(more), 7);
    for (const auto& [name, tensor] : one.tensors) {
      if (name.ends_with("out_proj.weight")) continue;
      EXPECT_TRUE(SameBits(Values(one, name), Values(longer, name))) << name;
    }
  }
}

TEST(InitialTensorsTest, Refusals) {
  const auto fails = [](const core::Value& config, std::string_view where,
                        std::initializer_list<std::string_view> words) {
    return testing::FailsAt(InitialTensors(config, "c.json", 1).status(), where, words);
  };
  const core::Value config = Config(kMamba2);
  EXPECT_TRUE(fails(With(config, {{"model_type", "gpt2"}}),
                    "c.json: model_type: ", {"got \"gpt2\"", "want mamba, mamba2"}));
  for (const char* name : {"hidden_size", "num_hidden_layers", "state_size", "conv_kernel",
                           "num_heads", "head_dim", "n_groups", "vocab_size"}) {
    EXPECT_TRUE(fails(With(config, {{name, core::Value()}}), std::string("c.json: ") + name,
                      {"got nothing, want a size"}));
    EXPECT_TRUE(fails(With(config, {{name, 0}}), std::string("c.json: ") + name, {"got 0"}));
    EXPECT_TRUE(fails(With(config, {{name, "x"}}), std::string("c.json: ") + name, {}));
  }
  EXPECT_TRUE(
      fails(With(config, {{"n_groups", 4}}), "c.json: n_groups: got 4, want a divisor", {}));
}

TEST(MakeConfigTest, NamesTheFlag) {
  const auto usage = [](const ModelSizes& sizes) {
    const core::Status status = MakeConfig(sizes).status();
    EXPECT_EQ(status.code(), core::StatusCode::kUsage);
    return status.message();
  };
  EXPECT_EQ(usage({.width = 24, .head_dim = 7}),
            "--head-dim: got 7, want a divisor of expand times width, 48");
  EXPECT_EQ(usage({.width = 24, .head_dim = 8, .groups = 4}),
            "--groups: got 4, want a divisor of the 6 heads");
  EXPECT_TRUE(usage({.architecture = "mamba", .dt_limit = std::pair(0.1, 1.0)})
                  .starts_with("--time-step-limit: "));
}

}  // namespace
}  // namespace hognose::train
