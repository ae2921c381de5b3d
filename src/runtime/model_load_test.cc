// Model::Load: what a folder may hold beyond what models/ checks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/model.h"
#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

using core::Value;
using testing::FailsAt;
using testing::MakeTiny;
using testing::TinyCheckpoint;
using testing::TinyKind;

core::Status LoadStatus(const std::string& path, bool strict = false) {
  return Model::Load(path, {.threads = 1, .strict = strict}).status();
}

TEST(ModelLoad, LayerNormCheckpointsAreRefused) {
  const std::string path = kFixtures + std::string(kRefusedFixture);
  EXPECT_TRUE(FailsAt(LoadStatus(path),
                      path + "/config.json: ", {"rms_norm: got false (LayerNorm), want true"}));
}

TEST(ModelLoad, NumbersThatAreNotFiniteAreNamed) {
  for (const core::DType dtype : {core::DType::kF32, core::DType::kBF16, core::DType::kF16}) {
    for (const std::string name :
         {"backbone.layers.1.mixer.x_proj.weight", "backbone.norm_f.weight", "unknown.weight"}) {
      const io::TestFolder folder;
      TinyCheckpoint tiny = MakeTiny(TinyKind::kMamba);
      tiny.Put("unknown.weight", {7});
      tiny.Retype(name, dtype);
      // All ones: a NaN in every float type.
      const size_t size = core::Bytes(dtype);
      std::memset(tiny.tensors.at(name).bytes.data() + 5 * size, 0xFF, size);
      WriteModelFolder(folder, tiny);
      EXPECT_TRUE(FailsAt(LoadStatus(folder.path()), folder / "model.safetensors: ",
                          {name + ": element 5 is not a finite number"}));
    }
  }
}

TEST(ModelLoad, UnknownTensorsWarnOnceOrFail) {
  const io::TestFolder folder;
  TinyCheckpoint tiny = MakeTiny(TinyKind::kMamba);
  tiny.Put("extra.a", {7});
  tiny.Put("extra.b", {7});
  WriteModelFolder(folder, tiny);
  const auto model = LoadModel(folder.path());
  ASSERT_EQ(model->warnings.size(), 1u);
  EXPECT_NE(model->warnings[0].find("extra.a: unknown tensor (and 1 more)"), std::string::npos);
  EXPECT_TRUE(FailsAt(LoadStatus(folder.path(), /*strict=*/true), folder.path() + ": ",
                      {"extra.a", "unknown tensor"}));
}

TEST(ModelLoad, EndOfTextIsAnIdOrSeveralOrNone) {
  const io::TestFolder folder;
  TinyCheckpoint tiny = MakeTiny(TinyKind::kMamba);
  const auto ids_of = [&](Value value) {
    tiny.Set("eos_token_id", std::move(value));
    WriteModelFolder(folder, tiny);
    return LoadModel(folder.path())->eos_ids;
  };
  EXPECT_EQ(ids_of(Value()), std::vector<int32_t>());
  EXPECT_EQ(ids_of(0), std::vector<int32_t>{0});
  EXPECT_EQ(ids_of(19), std::vector<int32_t>{19});
  EXPECT_EQ(ids_of(Value::Array{3, 5}), (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(ids_of(Value::Array{}), std::vector<int32_t>());
  // generation_config.json goes first.
  folder.Put("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(ids_of(3), std::vector<int32_t>{7});
  folder.Put("generation_config.json", "{}");
  EXPECT_EQ(ids_of(3), std::vector<int32_t>{3});
}

TEST(ModelLoad, AWrongEndOfTextIsNamed) {
  for (const bool generation : {false, true}) {
    for (const std::string value :
         {"20", "-1", "4294967296", "[0, 20]", "1.5", "\"0\"", "true", "[true]", "[[0]]", "{}"}) {
      const io::TestFolder folder;
      TinyCheckpoint tiny = MakeTiny(TinyKind::kMamba);
      const std::string text = "{\"eos_token_id\": " + value + "}";
      if (!generation) tiny.Set("eos_token_id", *io::ParseJson(text, "text")->Find("eos_token_id"));
      WriteModelFolder(folder, tiny);
      if (generation) folder.Put("generation_config.json", text);
      EXPECT_TRUE(FailsAt(LoadStatus(folder.path()),
                          folder / (generation ? "generation_config.json: " : "config.json: "),
                          {"eos_token_id: got", "want an"}))
          << value;
    }
  }
}

TEST(ModelLoad, PaddingIsNeverSampleable) {
  const io::TestFolder folder;
  TinyCheckpoint tiny = MakeTiny(TinyKind::kMamba2);
  tiny.Set("vocab_size", 17);
  WriteModelFolder(folder, tiny);
  const auto model = LoadModel(folder.path());
  ASSERT_EQ(model->sampleable.size(), 20u);
  for (size_t id = 0; id < 20; ++id) EXPECT_EQ(model->sampleable[id], id < 17) << id;
}

// A tokenizer with a hole at id 1 and nothing from id 3 on.
TEST(ModelLoad, OnlyIdsWithATextAreSampleable) {
  const io::TestFolder folder;
  WriteModelFolder(folder, MakeTiny(TinyKind::kMamba));
  folder.Put("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 2},
                                   "merges": []}})");
  const auto model = LoadModel(folder.path());
  ASSERT_TRUE(model->tokenizer.has_value());
  for (size_t id = 0; id < 20; ++id) EXPECT_EQ(model->sampleable[id], id == 0 || id == 2) << id;
  folder.Put("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 20, "b": 22},
                                   "merges": []}})");
  EXPECT_TRUE(FailsAt(LoadStatus(folder.path()), folder / "tokenizer.json: ", {"below 20"}));
}

TEST(ModelLoad, TheDigestNamesWeightsAndConfiguration) {
  const auto digest = [](const TinyCheckpoint& tiny) {
    const io::TestFolder folder;
    WriteModelFolder(folder, tiny);
    return LoadModel(folder.path())->Digest();
  };
  const TinyCheckpoint tiny = MakeTiny(TinyKind::kMamba);
  const std::string want = digest(tiny);
  EXPECT_EQ(want.size(), 32u);
  EXPECT_EQ(digest(tiny), want) << "another folder, the same model";
  TinyCheckpoint bit = tiny;
  bit.tensors.at("backbone.layers.1.mixer.D").bytes[0] ^= 1;
  EXPECT_NE(digest(bit), want);
  TinyCheckpoint config = tiny;
  config.Set("layer_norm_epsilon", 1e-6);
  EXPECT_NE(digest(config), want);
  TinyCheckpoint dtype = tiny;
  dtype.Retype("backbone.layers.1.mixer.D", core::DType::kBF16);
  EXPECT_NE(digest(dtype), want);
}

}  // namespace
}  // namespace hognose::runtime
