#include "io/model_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "io/test_util.h"

namespace hognose::io {
namespace {

using core::DType;
using core::TensorView;

constexpr float kValues[] = {1, 2, 3, 4};

void PutTensors(const std::string& path, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& name : names)
    tensors.emplace_back(name, TensorView{kValues, DType::kF32, 1, {4}});
  ASSERT_TRUE(WriteSafetensors(path, tensors, {}).ok());
}

core::Status Error(const TestFolder& folder) { return OpenModelFolder(folder.path()).status(); }

TEST(ModelFolderTest, OpensOneFile) {
  const TestFolder folder;
  folder.Put("config.json", R"({"hidden_size": 4, "time_step_limit": [0.0, Infinity]})");
  PutTensors(folder / "model.safetensors", {"a", "b"});
  auto opened = OpenModelFolder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->path, folder.path());
  EXPECT_EQ(*opened->config.Find("hidden_size")->AsInt(), 4);
  EXPECT_FALSE(opened->generation_config.has_value());
  EXPECT_EQ(opened->tokenizer_path, "");
  folder.Put("generation_config.json", R"({"eos_token_id": 0})");
  folder.Put("tokenizer.json", "{}");
  folder.Put("pytorch_model.bin", "PK");      // doesn't matter beside safetensors
  folder.Put("other.safetensors", "broken");  // nor does this beside model.safetensors
  opened = OpenModelFolder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(*opened->generation_config->Find("eos_token_id")->AsInt(), 0);
  EXPECT_EQ(opened->tokenizer_path, folder / "tokenizer.json");
  const ModelFolder moved = std::move(*opened);
  ASSERT_EQ(moved.tensors.size(), 2u);
  EXPECT_EQ(std::memcmp(moved.tensors.find("b")->second.data, kValues, sizeof(kValues)), 0);
}

TEST(ModelFolderTest, OpensTheOnlyFileOfAnyName) {
  const TestFolder folder;
  folder.Put("config.json", "{}");
  PutTensors(folder / "consolidated.safetensors", {"a"});
  EXPECT_TRUE(OpenModelFolder(folder.path()).ok());
  PutTensors(folder / "second.safetensors", {"a"});
  EXPECT_TRUE(
      FailsWith(Error(folder), {folder.path(), "got 2 *.safetensors files",
                                "want model.safetensors, or model.safetensors.index.json"}));
}

TEST(ModelFolderTest, RefusesWhatIsNoModel) {
  const TestFolder folder;
  EXPECT_TRUE(FailsWith(OpenModelFolder(folder / "none").status(),
                        {folder / "none", "got no such folder, want a model folder"}));
  EXPECT_TRUE(FailsWith(OpenModelFolder(folder.Put("file", "x")).status(),
                        {folder / "file", "got a file, want a model folder"}));
  PutTensors(folder / "model.safetensors", {"a"});
  EXPECT_TRUE(FailsWith(Error(folder), {folder / "config.json", "got no such file"}));
  folder.Put("config.json", "[]");
  EXPECT_TRUE(FailsWith(Error(folder), {folder / "config.json", "got an array, want an object"}));
  folder.Put("config.json", "{\"a\": }");
  EXPECT_TRUE(FailsWith(Error(folder), {folder / "config.json", "line 1 column 7: got '}'"}));
  folder.Put("config.json", "{}");
  folder.Put("generation_config.json", "7");
  EXPECT_TRUE(FailsWith(Error(folder),
                        {folder / "generation_config.json", "got an integer, want an object"}));
}

TEST(ModelFolderTest, RefusesFoldersWithoutWeights) {
  const TestFolder folder;
  folder.Put("config.json", "{}");
  EXPECT_TRUE(FailsWith(Error(folder), {folder.path(), "got no weights, want model.safetensors"}));
  folder.Put("optimizer.pt", "x");
  folder.Put("pytorch_model.bin", "x");
  EXPECT_TRUE(FailsWith(Error(folder),
                        {folder / "pytorch_model.bin", "got a pickled checkpoint, want safetensors",
                         "convert it", "safe_serialization=True"}));
}

TEST(ModelFolderTest, OpensShards) {
  const TestFolder folder;
  folder.Put("config.json", "{}");
  PutTensors(folder / "s1.safetensors", {"a", "b"});
  PutTensors(folder / "s2.safetensors", {"c", "unnamed"});
  folder.Put("model.safetensors.index.json",
             R"({"metadata": {"total_size": 48}, "weight_map":
                {"a": "s1.safetensors", "b": "s1.safetensors", "c": "s2.safetensors"}})");
  const auto opened = OpenModelFolder(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->files.size(), 2u);
  EXPECT_EQ(opened->tensors.size(), 4u);
  for (const auto& [name, tensor] : opened->tensors) {
    EXPECT_EQ(std::memcmp(tensor.data, kValues, sizeof(kValues)), 0) << name;
  }
}

TEST(ModelFolderTest, RefusesShardsThatDisagree) {
  const TestFolder folder;
  folder.Put("config.json", "{}");
  PutTensors(folder / "s1.safetensors", {"a"});
  const auto index = [&](const char* map) {
    folder.Put("model.safetensors.index.json", std::string(R"({"weight_map": )") + map + "}");
    return Error(folder);
  };
  EXPECT_TRUE(FailsWith(
      index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})"),
      {folder / "s2.safetensors", "got no such file", "model.safetensors.index.json names for b"}));
  EXPECT_TRUE(FailsWith(index(R"({"a": "s1.safetensors", "b": "s1.safetensors"})"),
                        {"model.safetensors.index.json: b: got it in no shard, want it in s1"}));
  PutTensors(folder / "s2.safetensors", {"b"});
  EXPECT_TRUE(FailsWith(index(R"({"a": "s2.safetensors", "b": "s1.safetensors"})"),
                        {"a: got it in s1.safetensors, want it in s2.safetensors"}));
  PutTensors(folder / "s2.safetensors", {"b", "a"});
  EXPECT_TRUE(FailsWith(index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})"),
                        {folder / "s2.safetensors", "a: got this tensor also in s1.safetensors"}));
  folder.Put("s2.safetensors", "x");
  EXPECT_TRUE(FailsWith(index(R"({"b": "s2.safetensors"})"),
                        {folder / "s2.safetensors", "header: got a file of 1 bytes"}));
}

TEST(WeightMapTest, RefusesWrongIndices) {
  const auto error = [](std::string_view json) { return ParseWeightMap(json, "i.json").status(); };
  EXPECT_TRUE(FailsWith(error("{"), {"i.json: line 1 column 2"}));
  EXPECT_TRUE(FailsWith(error("[]"), {"i.json: weight_map: got nothing, want an object"}));
  EXPECT_TRUE(FailsWith(error("{\"weight_map\": []}"), {"weight_map: got an array"}));
  EXPECT_TRUE(FailsWith(error("{\"weight_map\": {}}"), {"weight_map: got an empty object"}));
  EXPECT_TRUE(FailsWith(error(R"({"weight_map": {"a": 1}})"),
                        {"weight_map: a: got an integer, want a file name"}));
  for (const char* name : {"", ".", "..", "../x", "/etc/passwd", "a/b", "a\\\\b", "x\\u0000y"}) {
    EXPECT_TRUE(FailsWith(error(std::string(R"({"weight_map": {"a": ")") + name + "\"}}"),
                          {"weight_map: a: got \"", "want a plain file name"}))
        << name;
  }
  EXPECT_TRUE(FailsWith(error(R"({"weight_map": {"a": "x", "a": "y"}})"), {"\"a\" twice"}));
}

}  // namespace
}  // namespace hognose::io
