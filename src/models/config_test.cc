// What a configuration may say, and how a wrong word is answered.
#include <gtest/gtest.h>

#include <limits>

#include "models/test_util.h"

namespace hognose::models {
namespace {

using core::Value;
using testing::FailsAt;
using testing::MakeTiny;
using testing::TinyCheckpoint;
using testing::TinyKind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool IsOriginal(TinyKind kind) { return kind >= TinyKind::kOriginalMamba; }
bool IsMamba2(TinyKind kind) {
  return kind == TinyKind::kMamba2 || kind == TinyKind::kOriginalMamba2;
}

class Config : public ::testing::TestWithParam<TinyKind> {
 protected:
  TinyCheckpoint tiny_ = MakeTiny(GetParam());
};

// Sizes come from the tensors; what else is missing has the architecture's default.
TEST_P(Config, EveryFieldMayBeMissing) {
  const auto want = BuildAndRun(tiny_);
  for (const auto& field : tiny_.fields()) {
    TinyCheckpoint fewer = tiny_;
    fewer.Drop(field);
    if (field == "d_model") {
      EXPECT_TRUE(FailsAt(BuildStatus(fewer), kConfig, {"architectures: got nothing"}));
    } else if (IsMamba2(GetParam()) && (field == "ssm_cfg" || field == "ssm_cfg.layer")) {
      EXPECT_TRUE(FailsAt(BuildStatus(fewer), kWeights, {"mixer.", "missing"}))
          << "the original layout's default is Mamba1";
    } else {
      EXPECT_EQ(BuildAndRun(fewer), want) << field;
    }
    TinyCheckpoint null = tiny_;
    null.Set(field, Value());
    EXPECT_EQ(BuildStatus(null).ok(), BuildStatus(fewer).ok()) << field << " as null";
  }
}

struct Disagreement {
  std::string_view field, tensor;
};

std::vector<Disagreement> Disagreements(TinyKind kind) {
  constexpr std::string_view kPlain = "backbone.embeddings.weight",
                             kOld = "backbone.embedding.weight";
  switch (kind) {
    case TinyKind::kOriginalMamba:
      return {{"d_model", kOld},
              {"n_layer", "model.safetensors"},
              {"ssm_cfg.d_state", "A_log"},
              {"ssm_cfg.d_conv", "conv1d.weight"},
              {"ssm_cfg.dt_rank", "dt_proj.weight"},
              {"vocab_size", kOld}};
    case TinyKind::kOriginalMamba2:
      return {{"d_model", kOld},
              {"n_layer", "model.safetensors"},
              {"ssm_cfg.d_state", "conv1d.weight"},
              {"ssm_cfg.d_conv", "conv1d.weight"},
              {"ssm_cfg.headdim", "out_proj.weight"},
              {"ssm_cfg.ngroups", "conv1d.weight"},
              {"vocab_size", kOld}};
    case TinyKind::kMamba2:
      return {{"hidden_size", kPlain},         {"num_hidden_layers", "model.safetensors"},
              {"state_size", "conv1d.weight"}, {"conv_kernel", "conv1d.weight"},
              {"num_heads", "A_log"},          {"head_dim", "out_proj.weight"},
              {"n_groups", "conv1d.weight"},   {"vocab_size", kPlain}};
    default:
      return {{"hidden_size", kPlain},        {"num_hidden_layers", "model.safetensors"},
              {"state_size", "A_log"},        {"conv_kernel", "conv1d.weight"},
              {"intermediate_size", "A_log"}, {"time_step_rank", "dt_proj.weight"},
              {"vocab_size", kPlain}};
  }
}

// A value of a field; null if it isn't there.
const Value* Get(const TinyCheckpoint& c, std::string_view field) {
  constexpr std::string_view kSsm = "ssm_cfg.";
  if (!field.starts_with(kSsm)) return c.config.Find(field);
  return c.config.Find("ssm_cfg")->Find(field.substr(kSsm.size()));
}

TEST_P(Config, ASizeThatDisagreesNamesFieldAndTensor) {
  for (const auto& [field, tensor] : Disagreements(GetParam())) {
    const int64_t right = *Get(tiny_, field)->AsInt();
    for (const int64_t wrong : {right + 1, 2 * right, int64_t{1} << 31, right - 1}) {
      if (field == "vocab_size" && wrong < right) continue;  // padding rows: fine
      if (wrong < 1) continue;
      TinyCheckpoint broken = tiny_;
      broken.Set(field, wrong);
      // More layers than there are: the first missing tensor is the better message.
      const bool missing = tensor == "model.safetensors" && wrong > right;
      const std::string got = std::string(field) + ": got " + std::to_string(wrong);
      if (missing) {
        EXPECT_TRUE(FailsAt(BuildStatus(broken), kWeights, {"layers.2.norm.weight", "missing"}));
      } else {
        EXPECT_TRUE(FailsAt(BuildStatus(broken), kConfig, {got, "want", tensor}));
      }
    }
  }
}

TEST_P(Config, FewerLayersThanStoredSaysHowManyThereAre) {
  const std::string field = IsOriginal(GetParam()) ? "n_layer" : "num_hidden_layers";
  tiny_.Set(field, 1);
  EXPECT_EQ(BuildStatus(tiny_).message(),
            "config.json: " + field + ": got 1, want 2, the number of layers in model.safetensors");
}

TEST_P(Config, ASizeIsAWholePositiveNumber) {
  for (const auto& [field, tensor] : Disagreements(GetParam())) {
    for (const Value& wrong : {Value(0), Value(-1), Value(INT64_MIN), Value(INT64_MAX), Value(2.5),
                               Value(8.0), Value(1e300), Value(kNan), Value(true), Value("8"),
                               Value(Value::Array{8}), Value(Value::Object{})}) {
      TinyCheckpoint broken = tiny_;
      broken.Set(field, wrong);
      EXPECT_TRUE(FailsAt(BuildStatus(broken), kConfig,
                          {std::string(field) + ": got ", "an integer from 1 to 2147483648"}))
          << wrong.TypeName();
    }
    TinyCheckpoint automatic = tiny_;
    automatic.Set(field, "auto");
    EXPECT_TRUE(BuildStatus(automatic).ok()) << field;
  }
}

TEST_P(Config, FlagsAndNumbersHaveTheirTypes) {
  const bool original = IsOriginal(GetParam());
  for (const std::string field :
       {original ? "ssm_cfg.bias" : "use_bias", original ? "ssm_cfg.conv_bias" : "use_conv_bias",
        original ? "tie_embeddings" : "tie_word_embeddings"}) {
    for (const Value& wrong : {Value(0), Value("true"), Value(Value::Array{})}) {
      TinyCheckpoint broken = tiny_;
      broken.Set(field, wrong);
      EXPECT_TRUE(FailsAt(BuildStatus(broken), kConfig, {field + ": got", "true or false"}));
    }
  }
  for (const std::string field : {"layer_norm_epsilon", "mixer_rms_eps"}) {
    if (field == "mixer_rms_eps" && GetParam() != TinyKind::kFalconMamba) continue;
    for (const Value& wrong : {Value(-1e-5), Value(1.5), Value(1e300), Value(kInfinity),
                               Value(kNan), Value("1e-5"), Value(true)}) {
      TinyCheckpoint broken = tiny_;
      broken.Set(field, wrong);
      EXPECT_TRUE(FailsAt(BuildStatus(broken), kConfig, {field + ": got", "number"}));
    }
  }
}

TEST_P(Config, OtherActivationsAreRefused) {
  tiny_.Set("hidden_act", "swish");
  EXPECT_TRUE(BuildStatus(tiny_).ok());
  tiny_.Set("hidden_act", "gelu");
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kConfig, {"hidden_act: got \"gelu\", want silu"}));
  tiny_.Set("hidden_act", 3);
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kConfig, {"hidden_act: got 3, want a string"}));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Config, ::testing::ValuesIn(testing::kTinyKinds),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(Architecture, IsChosenByClassThenType) {
  const auto want = BuildAndRun(MakeTiny(TinyKind::kMamba2));
  auto tiny = MakeTiny(TinyKind::kMamba2);
  tiny.Set("model_type", "gpt2");
  EXPECT_EQ(BuildAndRun(tiny), want) << "the class wins";
  tiny = MakeTiny(TinyKind::kMamba2);
  for (const Value& nothing : {Value(), Value(Value::Array{})}) {
    tiny.Set("architectures", nothing);
    EXPECT_EQ(BuildAndRun(tiny), want) << "the type stands in";
  }
}

TEST(Architecture, UnknownOnesAreNamedWithTheKnown) {
  const std::string_view known = "MambaForCausalLM, Mamba2ForCausalLM, FalconMambaForCausalLM";
  auto tiny = MakeTiny(TinyKind::kMamba);
  tiny.Set("architectures", Value::Array{"LlamaForCausalLM"});
  EXPECT_TRUE(
      FailsAt(BuildStatus(tiny), kConfig, {"architectures: got \"LlamaForCausalLM\"", known}));
  tiny.Drop("architectures");
  tiny.Set("model_type", "llama");
  EXPECT_TRUE(FailsAt(BuildStatus(tiny), kConfig, {"model_type: got \"llama\"", known}));
  tiny.Drop("model_type");
  EXPECT_TRUE(FailsAt(BuildStatus(tiny), kConfig, {"architectures: got nothing", known}));
}

TEST(Architecture, MustBeOneString) {
  auto tiny = MakeTiny(TinyKind::kMamba);
  for (const Value& wrong :
       {Value(Value::Array{"MambaForCausalLM", "Mamba2ForCausalLM"}), Value(Value::Array{1}),
        Value("MambaForCausalLM"), Value(1), Value(Value::Object{})}) {
    tiny.Set("architectures", wrong);
    EXPECT_TRUE(
        FailsAt(BuildStatus(tiny), kConfig, {"architectures: got", "an array of one string"}));
  }
}

TEST(Architecture, AConfigIsAnObject) {
  auto tiny = MakeTiny(TinyKind::kMamba);
  for (const Value& wrong : {Value(), Value(1), Value(Value::Array{}), Value("x")}) {
    tiny.config = wrong;
    EXPECT_TRUE(FailsAt(BuildStatus(tiny), kConfig, {"want an object"}));
  }
}

TEST(OriginalLayout, UnsupportedPartsAreRefused) {
  const auto fails = [](std::string_view field, Value value, std::string_view what) {
    auto tiny = MakeTiny(TinyKind::kOriginalMamba2);
    tiny.Set(field, std::move(value));
    return FailsAt(BuildStatus(tiny), kConfig, {field, what});
  };
  EXPECT_TRUE(fails("rms_norm", false, "LayerNorm"));
  EXPECT_TRUE(fails("rms_norm", 1, "true or false"));
  EXPECT_TRUE(fails("d_intermediate", 32, "MLP"));
  EXPECT_TRUE(fails("d_intermediate", "32", "finite number"));
  EXPECT_TRUE(fails("attn_layer_idx", Value::Array{1}, "attention"));
  EXPECT_TRUE(fails("attn_layer_idx", 1, "attention"));
  EXPECT_TRUE(fails("attn_layer_idx", "1", "integers"));
  EXPECT_TRUE(fails("ssm_cfg", Value::Array{}, "an object"));
  EXPECT_TRUE(fails("ssm_cfg.layer", "Mamba3", "Mamba1 or Mamba2"));
  EXPECT_TRUE(fails("ssm_cfg.layer", 2, "a string"));
  auto tiny = MakeTiny(TinyKind::kOriginalMamba2);
  tiny.Set("d_intermediate", 0);
  tiny.Set("attn_layer_idx", Value::Array{});
  EXPECT_TRUE(BuildStatus(tiny).ok());
}

// The clamp must act, so that each spelling shows that it was read.
TEST(TimeStepLimit, IsReadInEverySpelling) {
  for (const bool original : {false, true}) {
    auto tiny = MakeTiny(original ? TinyKind::kOriginalMamba2 : TinyKind::kMamba2);
    const std::string field = original ? "ssm_cfg.dt_limit" : "time_step_limit";
    tiny.Set(field, Value::Array{2.0, 1e300});
    const auto want = BuildAndRun(tiny);
    for (const Value& infinity :
         {Value(kInfinity), Value("Infinity"), Value("+Infinity"), Value("inf"), Value("+inf"),
          Value(Value::Object{{"__float__", "Infinity"}}), Value(int64_t{1} << 60)}) {
      tiny.Set(field, Value::Array{2, infinity});
      EXPECT_EQ(BuildAndRun(tiny), want);
    }
    tiny.Drop(field);
    EXPECT_NE(BuildAndRun(tiny), want);
  }
}

TEST(TimeStepLimit, BrokenOnesAreRefused) {
  const Value broken[] = {Value(1.0),
                          Value("Infinity"),
                          Value(Value::Object{{"__float__", "Infinity"}}),
                          Value(Value::Array{}),
                          Value(Value::Array{0.0}),
                          Value(Value::Array{0.0, 1.0, 2.0}),
                          Value(Value::Array{1.0, 0.5}),
                          Value(Value::Array{-1.0, 1.0}),
                          Value(Value::Array{kNan, 1.0}),
                          Value(Value::Array{0.0, kNan}),
                          Value(Value::Array{kInfinity, kInfinity}),
                          Value(Value::Array{1e300, kInfinity}),
                          Value(Value::Array{0.0, "NaN"}),
                          Value(Value::Array{0.0, Value()}),
                          Value(Value::Array{0.0, true}),
                          Value(Value::Array{0.0, Value::Object{{"__float__", 1}}})};
  for (const Value& value : broken) {
    auto tiny = MakeTiny(TinyKind::kMamba2);
    tiny.Set("time_step_limit", value);
    EXPECT_TRUE(FailsAt(BuildStatus(tiny), kConfig, {"time_step_limit", "0 <= low <= high"}));
  }
}

}  // namespace
}  // namespace hognose::models
