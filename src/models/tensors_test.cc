// Which tensors make a model and which are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "models/test_util.h"

namespace hognose::models {
namespace {

using core::DType;
using testing::FailsAt;
using testing::MakeTiny;
using testing::TinyCheckpoint;
using testing::TinyKind;

class Tensors : public ::testing::TestWithParam<TinyKind> {
 protected:
  TinyCheckpoint tiny_ = MakeTiny(GetParam());
  std::string embedding() const {
    return tiny_.tensors.contains("backbone.embeddings.weight") ? "backbone.embeddings.weight"
                                                                : "backbone.embedding.weight";
  }
};

TEST_P(Tensors, AValidCheckpointRuns) {
  for (const float logit : BuildAndRun(tiny_)) EXPECT_TRUE(std::isfinite(logit));
}

TEST_P(Tensors, EveryOneIsNeeded) {
  for (const auto& [name, tensor] : tiny_.tensors) {
    TinyCheckpoint broken = tiny_;
    broken.tensors.erase(name);
    const std::string_view what =
        name == embedding() ? "the embedding is missing" : std::string_view(name);
    EXPECT_TRUE(FailsAt(BuildStatus(broken), kWeights, {what, "missing"})) << name;
  }
}

// Also where no config tells the number of layers: a missing norm doesn't end the count.
TEST_P(Tensors, AMissingNormIsNotTheEndOfTheLayers) {
  for (const auto field : {"num_hidden_layers", "n_layer"}) tiny_.Drop(field);
  tiny_.tensors.erase("backbone.layers.1.norm.weight");
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kWeights, {"backbone.layers.1.norm.weight", "missing"}));
}

// One more in one dimension: the message names the tensor and both shapes.
TEST_P(Tensors, WrongShapesAreNamed) {
  for (const auto& [name, tensor] : tiny_.tensors) {
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      TinyCheckpoint broken = tiny_;
      auto shape = tensor.shape;
      ++shape[axis];
      broken.Put(name, shape);
      const auto status = BuildStatus(broken);
      if (name == embedding() && axis == 0) {
        EXPECT_TRUE(status.ok()) << "more rows than vocab_size are padding";
        continue;
      }
      ASSERT_FALSE(status.ok()) << name << core::ShapeToString(shape);
      EXPECT_NE(status.message().find("got "), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("want "), std::string::npos) << status.message();
    }
  }
  tiny_.Put("backbone.layers.1.mixer.D", {5});
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kWeights,
                      {"backbone.layers.1.mixer.D: got f32 [5], want f32 ["}));
}

TEST_P(Tensors, WrongRanksAndEmptyOnesAreRefused) {
  for (const auto& [name, tensor] : tiny_.tensors) {
    TinyCheckpoint broken = tiny_;
    broken.Put(name, {tensor.bytes.size() / 4, 1, 1, 1});
    EXPECT_FALSE(BuildStatus(broken).ok()) << name;
    broken.Put(name, {});
    EXPECT_FALSE(BuildStatus(broken).ok()) << name;
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      auto shape = tensor.shape;
      shape[axis] = 0;
      broken.Put(name, shape);
      EXPECT_FALSE(BuildStatus(broken).ok()) << name << core::ShapeToString(shape);
    }
  }
}

// Every size as 0 everywhere it stands, without the config's word: no division by it, no empty
// loop.
TEST_P(Tensors, SizesOfZeroAreRefused) {
  for (const size_t size : {20, 8, 12, 4, 3, 2, 24, 10, 28, 44, 1}) {
    TinyCheckpoint broken = tiny_;
    for (const auto& field : tiny_.fields()) {
      const auto kept = {"architectures", "d_model", "ssm_cfg", "ssm_cfg.layer"};
      if (std::find(kept.begin(), kept.end(), field) == kept.end()) broken.Drop(field);
    }
    broken.Drop("d_model");
    broken.Set("d_model", "auto");
    bool changed = false;
    for (const auto& [name, tensor] : tiny_.tensors) {
      auto shape = tensor.shape;
      for (auto& n : shape) changed |= n == size;
      for (auto& n : shape) n = n == size ? 0 : n;
      broken.Put(name, shape);
    }
    if (changed) {
      EXPECT_FALSE(BuildStatus(broken).ok()) << size;
    }
  }
}

TEST_P(Tensors, OnlyFloatsAreTaken) {
  for (const auto& [name, tensor] : tiny_.tensors) {
    for (const DType dtype : {DType::kF64, DType::kI64, DType::kI8, DType::kBool}) {
      TinyCheckpoint broken = tiny_;
      broken.Retype(name, dtype);
      EXPECT_TRUE(
          FailsAt(BuildStatus(broken), kWeights,
                  {name + ": got " + std::string(core::Name(dtype)), "want f32, bf16 or f16"}));
    }
  }
}

// Small multiples of 1/64 are exact in all three types: so are the results equal bit by bit.
TEST_P(Tensors, EveryFloatTypeOfEveryTensorIsTheSameModel) {
  const auto want = BuildAndRun(tiny_);
  for (const auto& [name, tensor] : tiny_.tensors) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      TinyCheckpoint other = tiny_;
      other.Retype(name, dtype);
      const auto got = BuildAndRun(other);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        // Sums over at most 24 products may go in another order for another type: 24 eps of the
        // largest partial sum, which here is below 4, through two layers.
        ASSERT_NEAR(got[i], want[i], 2 * 24 * 4 * 0x1p-23) << name;
      }
    }
  }
}

TEST_P(Tensors, UnknownOnesAreListed) {
  tiny_.Put("backbone.layers.0.mixer.extra", {3}, DType::kI64);
  const core::TensorMap views = tiny_.views();
  const auto model = Build({tiny_.config, "config.json", views, "model.safetensors"});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->unknown_tensors, std::vector<std::string>{"backbone.layers.0.mixer.extra"});
}

TEST_P(Tensors, AnALogWithoutFiniteExponentialIsRefused) {
  for (const float value : {89.0f, INFINITY, NAN}) {
    TinyCheckpoint broken = tiny_;
    std::memcpy(broken.tensors.at("backbone.layers.1.mixer.A_log").bytes.data() + 4, &value, 4);
    EXPECT_TRUE(FailsAt(BuildStatus(broken), kWeights,
                        {"backbone.layers.1.mixer.A_log: value 1: got", "finite exponential"}));
  }
}

TEST_P(Tensors, BiasesAreTakenAsTheConfigOrTheTensorsSay) {
  const std::string field = GetParam() >= TinyKind::kOriginalMamba ? "ssm_cfg.bias" : "use_bias";
  const auto without = BuildAndRun(tiny_);
  tiny_.Set(field, true);
  EXPECT_TRUE(
      FailsAt(BuildStatus(tiny_), kWeights, {"backbone.layers.0.mixer.in_proj.bias", "missing"}));
  for (const std::string layer : {"backbone.layers.0.mixer.", "backbone.layers.1.mixer."}) {
    tiny_.Put(layer + "in_proj.bias", {tiny_.tensors.at(layer + "in_proj.weight").shape[0]});
    tiny_.Put(layer + "out_proj.bias", {8});
  }
  const auto with = BuildAndRun(tiny_);
  EXPECT_NE(with, without);
  tiny_.Drop(field);
  EXPECT_EQ(BuildAndRun(tiny_), with);
}

struct HeadCase {
  bool present;
  int flag;  // -1: none
  bool own, ok;
};

TEST_P(Tensors, TheHeadIsItsOwnOrTheEmbeddingOrAnError) {
  const std::string field =
      GetParam() >= TinyKind::kOriginalMamba ? "tie_embeddings" : "tie_word_embeddings";
  for (const HeadCase& c : {HeadCase{true, -1, true, true},
                            {true, 0, true, true},
                            {true, 1, true, true},
                            {false, -1, false, true},
                            {false, 1, false, true},
                            {false, 0, false, false}}) {
    TinyCheckpoint checkpoint = tiny_;
    checkpoint.Drop(field);
    if (c.flag >= 0) checkpoint.Set(field, c.flag == 1);
    if (c.present) checkpoint.Put("lm_head.weight", {20, 8});
    if (!c.ok) {
      EXPECT_TRUE(FailsAt(BuildStatus(checkpoint), kWeights,
                          {"lm_head.weight", "missing", "config.json", "not tied"}));
      continue;
    }
    const core::TensorMap views = checkpoint.views();
    const auto model = Build({checkpoint.config, "config.json", views, "model.safetensors"});
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->tied, !c.own);
    EXPECT_EQ(model->head.w.values.data,
              views.find(c.own ? "lm_head.weight" : embedding())->second.data);
  }
}

TEST_P(Tensors, TheHeadMustFit) {
  tiny_.Put("lm_head.weight", {20, 9});
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kWeights, {"lm_head.weight", "[20, 9]", "[20, 8]"}));
  tiny_.Put("lm_head.weight", {160});
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kWeights, {"lm_head.weight", "[160]", "[V, D]"}));
  tiny_.Put("lm_head.weight", {0, 8});
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kWeights, {"lm_head.weight", "[0, 8]"}));
  // Fewer rows than the embedding: the vocabulary ends where the shorter one does.
  tiny_.Put("lm_head.weight", {19, 8});
  EXPECT_TRUE(FailsAt(BuildStatus(tiny_), kConfig, {"vocab_size: got 20, want at most 19"}));
  tiny_.Drop("vocab_size");
  EXPECT_EQ(BuildAndRun(tiny_).size(), 19u);
}

TEST(Mamba2Tensors, GroupsMustDivideTheHeads) {
  for (const bool original : {false, true}) {
    auto tiny = MakeTiny(original ? TinyKind::kOriginalMamba2 : TinyKind::kMamba2);
    const std::string groups = original ? "ssm_cfg.ngroups" : "n_groups";
    // 3 groups of 4 states: 12 + 24 channels, 12 + 36 + 4 rows.
    for (const std::string layer : {"backbone.layers.0.mixer.", "backbone.layers.1.mixer."}) {
      tiny.Put(layer + "conv1d.weight", {36, 1, 3});
      tiny.Put(layer + "conv1d.bias", {36});
      tiny.Put(layer + "in_proj.weight", {52, 8});
    }
    tiny.Set(groups, 3);
    EXPECT_TRUE(FailsAt(BuildStatus(tiny), kConfig, {groups + ": got 3", "4 heads", "A_log"}));
  }
}

TEST(Mamba2Tensors, HeadsMustDivideTheInnerWidth) {
  auto tiny = MakeTiny(TinyKind::kMamba2);
  tiny.Drop("num_heads");
  tiny.Put("backbone.layers.0.mixer.A_log", {5});
  EXPECT_TRUE(FailsAt(BuildStatus(tiny), kWeights,
                      {"backbone.layers.0.mixer.out_proj.weight: got f32 [8, 12]", "5 heads"}));
}

// Without hidden_size the embedding alone says D; a mixer of another width must not slip through.
TEST_P(Tensors, MixersAreAsWideAsTheEmbedding) {
  for (const auto field : {"hidden_size", "d_model"}) {
    if (tiny_.config.Find(field) != nullptr) tiny_.Set(field, "auto");
  }
  for (const size_t width : {4, 7, 9, 64}) {
    TinyCheckpoint broken = tiny_;
    for (const std::string layer : {"backbone.layers.0.mixer.", "backbone.layers.1.mixer."}) {
      broken.Put(layer + "in_proj.weight",
                 {tiny_.tensors.at(layer + "in_proj.weight").shape[0], width});
      broken.Put(layer + "out_proj.weight", {width, 12});
    }
    EXPECT_TRUE(FailsAt(BuildStatus(broken), kWeights, {"backbone.layers.0.mixer.", "8"}));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Tensors, ::testing::ValuesIn(testing::kTinyKinds),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace hognose::models
