#include "io/adapter.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "io/json.h"
#include "io/test_util.h"

namespace hognose::io {
namespace {

constexpr const char* kModule = "backbone.layers.0.mixer.in_proj";

// An adapter of rank 3 of a matrix [5, 4]; a test breaks one thing.
class AdapterTest : public ::testing::Test {
 protected:
  AdapterTest() {
    for (size_t i = 0; i < a_.size(); ++i) a_[i] = 0.25f * static_cast<float>(i) - 1.0f;
    for (size_t i = 0; i < b_.size(); ++i) b_[i] = 1.0f / static_cast<float>(i + 1);
  }

  static core::TensorView View(const std::vector<float>& floats, size_t rows) {
    return {floats.data(), core::DType::kF32, 2, {rows, floats.size() / rows}};
  }
  core::TensorMap Pair(const std::string& module = kModule) const {
    return {{module + std::string(kLoraA), View(a_, 3)},
            {module + std::string(kLoraB), View(b_, 5)}};
  }
  void Write(const core::TensorMap& tensors) const {
    const auto status = WriteAdapter(folder_ / "adapter_model.safetensors", tensors);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  // As others write them: the names as they are.
  void WriteNames(const core::TensorMap& tensors) const {
    const auto status = WriteSafetensors(folder_ / "adapter_model.safetensors",
                                         {tensors.begin(), tensors.end()}, {});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void PutConfig(std::string_view text) const { folder_.Put("adapter_config.json", text); }
  // The fields of a plain adapter, and what `more` says.
  void PutFields(std::string_view more) const {
    PutConfig(fmt::format(R"({{"peft_type": "LORA", "r": 3, "lora_alpha": 6{}{}}})",
                          more.empty() ? "" : ", ", more));
  }
  core::Status Error() const { return OpenAdapter(folder_.path()).status(); }
  float ScaleOf() const {
    const auto adapter = OpenAdapter(folder_.path());
    EXPECT_TRUE(adapter.ok()) << adapter.status().message();
    return adapter.ok() ? adapter->scale : NAN;
  }

  const TestFolder folder_;
  const std::string config_ = folder_ / "adapter_config.json: ";
  const std::string weights_ = folder_ / "adapter_model.safetensors: ";
  std::vector<float> a_ = std::vector<float>(3 * 4), b_ = std::vector<float>(5 * 3);
};

TEST_F(AdapterTest, WhatIsWrittenIsRead) {
  PutConfig(AdapterConfig({.rank = 3, .alpha = 1.5, .targets = {"in_proj"}, .base = "a \"b\""}));
  Write(Pair());
  auto opened = OpenAdapter(folder_.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Adapter adapter = std::move(*opened);  // the views stay good
  EXPECT_EQ(adapter.scale, 0.5f);
  ASSERT_EQ(adapter.tensors.size(), 2u);
  for (const auto& [name, tensor] : Pair()) {
    const auto found = adapter.tensors.find(name);
    ASSERT_NE(found, adapter.tensors.end()) << name;
    EXPECT_EQ(core::ToString(found->second), core::ToString(tensor));
    EXPECT_EQ(std::memcmp(found->second.data, tensor.data, tensor.bytes()), 0) << name;
  }
  EXPECT_EQ(*adapter.config.Find("base_model_name_or_path")->AsString(), "a \"b\"");
  EXPECT_EQ(ToJson(*adapter.config.Find("target_modules")), R"(["in_proj"])");
  // What PEFT reads: the prefix in front, and the format in the metadata.
  const auto file = SafetensorsFile::Open(folder_ / "adapter_model.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->metadata(), (Metadata{{"format", "pt"}}));
  for (const auto& [name, tensor] : file->tensors()) {
    EXPECT_TRUE(name.starts_with("base_model.model.backbone.")) << name;
  }
}

TEST_F(AdapterTest, NamesWithAndWithoutThePrefix) {
  PutFields("");
  WriteNames(Pair());
  auto adapter = OpenAdapter(folder_.path());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_TRUE(adapter->tensors.contains(kModule + std::string(kLoraA)));
  // One half with it, one without.
  core::TensorMap mixed = Pair();
  auto node = mixed.extract(kModule + std::string(kLoraB));
  node.key() = "base_model.model." + node.key();
  mixed.insert(std::move(node));
  WriteNames(mixed);
  EXPECT_TRUE(OpenAdapter(folder_.path()).ok());
  // Both of one: which of them counts?
  core::TensorMap both = Pair();
  both.merge(Pair("base_model.model." + std::string(kModule)));
  WriteNames(both);
  EXPECT_TRUE(FailsWith(Error(), {weights_ + kModule, "with and without base_model.model."}));
}

TEST_F(AdapterTest, ScaleIsAlphaByRankOrItsRoot) {
  Write(Pair());
  PutFields("");
  EXPECT_EQ(ScaleOf(), 2.0f);
  PutFields(R"("use_rslora": false)");
  EXPECT_EQ(ScaleOf(), 2.0f);
  PutFields(R"("use_rslora": true)");
  EXPECT_EQ(ScaleOf(), static_cast<float>(6.0 / std::sqrt(3.0)));
  PutConfig(R"({"peft_type": "LORA", "r": 3.0, "lora_alpha": -0.75})");
  EXPECT_EQ(ScaleOf(), -0.25f);
}

TEST_F(AdapterTest, TakesWhatChangesNothing) {
  Write(Pair());
  for (const char* more :
       {R"("use_dora": false, "fan_in_fan_out": false)", R"("use_dora": null, "use_rslora": null)",
        R"("rank_pattern": {}, "alpha_pattern": {})", R"("rank_pattern": null)",
        R"("layer_replication": null, "alora_invocation_tokens": null, "bias": "none")",
        R"("lora_dropout": 0.1, "target_modules": "all-linear", "unknown": [1, {"x": null}])"}) {
    PutFields(more);
    EXPECT_EQ(ScaleOf(), 2.0f) << more;
  }
}

TEST_F(AdapterTest, OtherConfigurationsAreRefusedByName) {
  Write(Pair());
  for (const auto& [more, field] : std::vector<std::pair<const char*, const char*>>{
           {R"("use_dora": true)", "use_dora: got true, want false"},
           {R"("use_dora": "yes")", "use_dora: got \"yes\""},
           {R"("fan_in_fan_out": true)", "fan_in_fan_out: got true, want false"},
           {R"("rank_pattern": {"x_proj": 4})", "rank_pattern: got {\"x_proj\""},
           {R"("rank_pattern": 4)", "rank_pattern: got 4"},
           {R"("alpha_pattern": {"x_proj": 4})", "alpha_pattern: got {\"x_proj\""},
           {R"("layer_replication": [[0, 2]])", "layer_replication: got [["},
           {R"("alora_invocation_tokens": [1])", "alora_invocation_tokens: got [1]"},
           {R"("use_rslora": 1)", "use_rslora: got 1, want true or false"}}) {
    PutFields(more);
    EXPECT_TRUE(FailsWith(Error(), {config_ + field})) << more;
  }
  for (const auto& [text, begin] : std::vector<std::pair<const char*, const char*>>{
           {"{}", "peft_type: got nothing"},
           {"[]", "peft_type: got nothing"},
           {R"({"peft_type": "IA3"})", "peft_type: got \"IA3\", want \"LORA\""},
           {R"({"peft_type": 3})", "peft_type: got 3"},
           {R"({"peft_type": "LORA", "lora_alpha": 1})", "r: got nothing"},
           {R"({"peft_type": "LORA", "r": 0, "lora_alpha": 1})", "r: got 0"},
           {R"({"peft_type": "LORA", "r": -3, "lora_alpha": 1})", "r: got -3"},
           {R"({"peft_type": "LORA", "r": 2.5, "lora_alpha": 1})", "r: got 2.5"},
           {R"({"peft_type": "LORA", "r": NaN, "lora_alpha": 1})", "r: got NaN"},
           {R"({"peft_type": "LORA", "r": 1e300, "lora_alpha": 1})", "r: got 1e+300"},
           {R"({"peft_type": "LORA", "r": "3", "lora_alpha": 1})", "r: got \"3\""},
           {R"({"peft_type": "LORA", "r": 3})", "lora_alpha: got nothing"},
           {R"({"peft_type": "LORA", "r": 3, "lora_alpha": null})", "lora_alpha: got null"},
           {R"({"peft_type": "LORA", "r": 3, "lora_alpha": NaN})", "lora_alpha: got NaN"},
           {R"({"peft_type": "LORA", "r": 3, "lora_alpha": -Infinity})", "lora_alpha: got -Inf"},
           // Finite in float64 only.
           {R"({"peft_type": "LORA", "r": 3, "lora_alpha": 2e39})", "lora_alpha: got 2e+39"}}) {
    PutConfig(text);
    EXPECT_TRUE(FailsWith(Error(), {config_ + begin})) << text;
  }
}

// A rank that the scale was not computed for would be a wrong scale that nobody sees.
TEST_F(AdapterTest, RanksAreThoseOfTheConfiguration) {
  Write(Pair());
  PutConfig(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 1})");
  EXPECT_TRUE(FailsWith(Error(), {weights_ + kModule, "lora_A", "got f32 [3, 4]", "r 4"}));
  PutFields("");
  core::TensorMap wrong = Pair();
  wrong[kModule + std::string(kLoraB)] = View(b_, 3);  // turned
  Write(wrong);
  EXPECT_TRUE(FailsWith(Error(), {weights_ + kModule, "lora_B", "got f32 [3, 5]", "r 3"}));
  wrong = Pair();
  wrong[kModule + std::string(kLoraA)].rank = 1;
  wrong[kModule + std::string(kLoraA)].shape = {12};
  Write(wrong);
  EXPECT_TRUE(FailsWith(Error(), {weights_ + kModule, "lora_A", "got f32 [12]"}));
}

TEST_F(AdapterTest, TensorsArePairsAndNothingElse) {
  PutFields("");
  for (const std::string_view missing : {kLoraA, kLoraB}) {
    core::TensorMap half = Pair();
    half.erase(kModule + std::string(missing));
    Write(half);
    const std::string name = weights_ + kModule + std::string(missing);
    EXPECT_TRUE(FailsWith(Error(), {name + ": the tensor is missing"})) << missing;
  }
  for (const char* name :
       {"backbone.layers.0.mixer.in_proj.weight", "backbone.layers.0.mixer.in_proj.lora_B.bias",
        "backbone.embeddings.lora_embedding_A", "x.lora_magnitude_vector", "lora_A", ""}) {
    core::TensorMap more = Pair();
    more[name] = View(a_, 3);
    Write(more);
    EXPECT_TRUE(FailsWith(Error(), {weights_ + "base_model.model." + name, "neither"})) << name;
  }
  Write({});
  EXPECT_TRUE(FailsWith(Error(), {weights_ + "got no tensor"}));
}

TEST_F(AdapterTest, DamagedAndMissingFiles) {
  EXPECT_TRUE(FailsWith(Error(), {config_}));
  PutFields("");
  EXPECT_TRUE(FailsWith(Error(), {weights_}));
  EXPECT_TRUE(FailsWith(OpenAdapter(folder_ / "none").status(), {folder_ / "none"}));
  Write(Pair());
  ASSERT_TRUE(Error().ok());
  const std::string whole = Slurp(folder_ / "adapter_model.safetensors");
  for (size_t size = 0; size < whole.size(); size += 7) {
    folder_.Put("adapter_model.safetensors", whole.substr(0, size));
    ASSERT_TRUE(FailsWith(Error(), {weights_})) << size;
  }
  folder_.Put("adapter_model.safetensors", whole);
  const std::string config = Slurp(folder_ / "adapter_config.json");
  for (size_t size = 0; size < config.size(); size += 3) {
    PutConfig(config.substr(0, size));
    ASSERT_TRUE(FailsWith(Error(), {folder_ / "adapter_config.json"})) << size;
  }
}

}  // namespace
}  // namespace hognose::io
