// hognose quantize: what it writes, and that every command takes it.
#include <cmath>
#include <filesystem>
#include <map>

#include "codecs/quantized.h"
#include "io/npy.h"
#include "tests/cli/quantize_util.h"
#include "tests/support/compare.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;
using testing::CloseToScale;

core::Value Config(const std::string& folder) {
  auto value = io::ParseJson(Slurp(folder + "/config.json"), folder);
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? std::move(*value) : core::Value();
}

// The ids of a fixture as score reads them.
std::string FixtureIds(const std::string& model) {
  const auto file = io::SafetensorsFile::Open(model + "/expected.safetensors");
  EXPECT_TRUE(file.ok());
  const auto& ids = file->tensors().find("ids")->second;
  std::string text;
  for (size_t i = 0; i < ids.elements(); ++i) {
    text += std::to_string(static_cast<const int64_t*>(ids.data)[i]) + " ";
  }
  return text;
}

// The logits of `ids` by a model of a folder.
std::vector<float> Logits(const TestFolder& folder, const std::string& model,
                          const std::string& ids) {
  const std::string npy = folder / "logits.npy";
  EXPECT_TRUE(Done(Hognose(
      {"score", model, "--ids", ids, "--logits", npy, "--strict", "--activations", "f32"})));
  const auto array = io::OpenNpy(npy);
  EXPECT_TRUE(array.ok());
  if (!array.ok()) return {};
  const core::TensorView& t = array->tensor;
  return {t.As<float>(), t.As<float>() + t.elements()};
}

// The weights of a folder as f32, quantised ones decoded.
std::map<std::string, std::vector<float>> Weights(const std::string& folder,
                                                  core::TensorMap* shapes = nullptr) {
  std::map<std::string, std::vector<float>> weights;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file_name = entry.path().filename();
    if (!file_name.starts_with("model") || !file_name.ends_with(".safetensors")) continue;
    const auto file = io::SafetensorsFile::Open(entry.path());
    EXPECT_TRUE(file.ok());
    const core::TensorMap& tensors = file->tensors();
    for (const auto& [name, tensor] : tensors) {
      if (name.ends_with(".scales") || name.ends_with(".shape")) continue;
      core::TensorView flat = tensor;  // one row
      flat.rank = 2;
      flat.shape = {1, tensor.elements()};
      codecs::WeightMatrix w(flat);
      core::TensorView plain = tensor;
      if (const auto shape = tensors.find(name + ".shape"); shape != tensors.end()) {
        const auto* sizes = static_cast<const int64_t*>(shape->second.data);
        const bool int8 = tensor.dtype == core::DType::kI8;
        w.encoding = int8 ? codecs::Encoding::kInt8 : codecs::Encoding::kInt4;
        w.rows = static_cast<size_t>(sizes[0]);
        w.cols = static_cast<size_t>(sizes[1]);
        w.values = tensor;
        w.scales = tensors.find(name + ".scales")->second;
        w.group = tensor.shape[1] * (int8 ? 1 : 2) / w.scales.shape[1];
        plain.shape = {w.rows, w.cols};
      }
      auto& values = weights[name];
      values.resize(w.rows * w.cols);
      for (size_t m = 0; m < w.rows; ++m) {
        codecs::DecodeRow(w, m, std::span(values).subspan(m * w.cols, w.cols));
      }
      plain.dtype = core::DType::kF32;
      plain.data = nullptr;
      if (shapes != nullptr) (*shapes)[name] = plain;
    }
  }
  return weights;
}

// Passes if OUT holds MODEL's weights, rounded, and computes what they say.
void CheckQuantized(const TestFolder& folder, const std::string& model, const std::string& out,
                    const std::string& to) {
  // Rounding, as a part of the largest weight of the matrix: half a unit in bf16's last place, or
  // half a step of int8's and int4's codes with what a rounded or better scale cuts off.
  const double tolerance = to == "bf16" ? 0x1p-8 : to == "int8" ? 0.008 : 0.25;
  core::TensorMap tensors;
  auto after = Weights(out, &tensors);
  const auto before = Weights(model);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, values] : before) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(CloseToScale(after[name], values, tolerance));
    tensors[name].data = after[name].data();
  }
  const std::string plain = folder / "plain";
  fs::create_directories(plain);
  WriteTensors(plain + "/model.safetensors", tensors);
  folder.Put("plain/config.json", Slurp(model + "/config.json"));
  const std::string ids = folder.Put("ids", FixtureIds(model));
  EXPECT_TRUE(CloseToScale(Logits(folder, out, ids), Logits(folder, plain, ids), 2e-4));
}

class QuantizeTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string to_ = GetParam();
  TestFolder folder_;
  const std::string out_ = folder_ / "out";
};

TEST_P(QuantizeTest, FilesOfTheFolder) {
  const Outcome o = Quantize(kDemo, out_, to_);
  EXPECT_TRUE(Done(o));
  EXPECT_EQ(o.err, "");
  EXPECT_TRUE(o.out.starts_with("weights ")) << o.out;
  std::string names;
  for (const auto& [name, bytes] : Contents(out_)) names += name + " ";
  EXPECT_EQ(names, "config.json generation_config.json model.safetensors tokenizer.json ");
  for (const char* name : {"/generation_config.json", "/tokenizer.json"}) {
    EXPECT_EQ(Slurp(out_ + name), Slurp(kDemo + name));
  }
  core::Value::Object want = *Config(kDemo).AsObject();
  if (to_ != "bf16") {
    want.emplace_back("quantization_config", core::Value::Object{{"quant_method", "hognose"},
                                                                 {"format", to_},
                                                                 {"group_size", uint64_t{64}}});
  }
  EXPECT_EQ(io::ToJson(Config(out_)), io::ToJson(want));
  EXPECT_EQ(folder_.CountFiles(), 1u);
}

TEST_P(QuantizeTest, EveryCommandTakesIt) {
  ASSERT_TRUE(Done(Quantize(kDemo, out_, to_)));
  const Outcome run = Hognose({"run", out_, "-p", "Once", "-n", "8", "--seed", "1"});
  EXPECT_TRUE(Done(run));
  EXPECT_FALSE(run.out.empty());
  const core::Value score = Json(Hognose({"score", out_, "--text", "-"}, kEnglish));
  EXPECT_LT(Number(score, "nll"), 4.0);
  EXPECT_EQ(Hognose({"tokenize", out_}, kEnglish).out, Hognose({"tokenize", kDemo}, kEnglish).out);
  const Outcome bench =
      Hognose({"bench", out_, "--prompt", "4", "--generate", "2", "--batch", "2", "--json"});
  EXPECT_TRUE(Done(bench));
  EXPECT_NE(bench.out.find("\"" + to_ + "\""), std::string::npos) << bench.out;
  const core::Value after = Json(Hognose({"inspect", out_, "--json"}));
  const core::Value before = Json(Hognose({"inspect", kDemo, "--json"}));
  EXPECT_EQ(Number(after, "parameters"), Number(before, "parameters"));
  // Of the matrices; everything else stays as it is.
  const std::map<std::string, double> bytes_a_parameter = {
      {"int8", 1.05}, {"int4", 0.56}, {"bf16", 2.0}};
  const auto demo = io::SafetensorsFile::Open(kDemo + "/model.safetensors");
  ASSERT_TRUE(demo.ok());
  double most = 0.0;
  for (const auto& [name, tensor] : demo->tensors()) {
    const bool matrix = tensor.rank == 2 && name.ends_with(".weight");
    most += matrix ? bytes_a_parameter.at(to_) * static_cast<double>(tensor.elements())
                   : static_cast<double>(tensor.bytes());
  }
  EXPECT_LE(Number(after, "weight_bytes"), most);
}

TEST_P(QuantizeTest, ThreadsNeverChangeABit) {
  for (const std::string& model : {kDemo, Fixture("mamba2_hidden_33")}) {
    ASSERT_TRUE(Done(Quantize(model, folder_ / "one", to_, {"-t", "1", "--force"})));
    ASSERT_TRUE(Done(Quantize(model, folder_ / "three", to_, {"-t", "3", "--force"})));
    EXPECT_TRUE(Contents(folder_ / "one") == Contents(folder_ / "three"));
  }
}

TEST_P(QuantizeTest, EveryGroup) {
  for (const std::string name : {"mamba_basic", "mamba2_inner_not_expand", "mamba2_groups_4",
                                 "falcon_mamba_bf16", "mamba2_shards"}) {
    const std::string model = Fixture(name);
    for (const std::string group : {"32", "128"}) {  // 64 is in every other test
      SCOPED_TRACE(name + " " + group);
      ASSERT_TRUE(Done(Quantize(model, out_, to_, {"--force", "--group", group})));
      const core::Value config = Config(out_);
      const core::Value* scheme = config.Find("quantization_config");
      ASSERT_EQ(scheme != nullptr, to_ != "bf16");
      if (scheme != nullptr) {
        EXPECT_EQ(Number(*scheme, "group_size"), std::stod(group));
      }
      CheckQuantized(folder_, model, out_, to_);
    }
  }
}

TEST_P(QuantizeTest, MeasuresThePerplexity) {
  const std::string text = folder_.Put("text", kEnglish);
  const core::Value report =
      Json(Quantize(kDemo, out_, to_, {"--calibration", text, "--gate", "--json"}));
  EXPECT_EQ(Keys(report),
            "model out bytes_before bytes_after perplexity_before perplexity_after rise "
            "allowed_rise");
  const auto perplexity = [&](const std::string& model) {
    return Number(Json(Hognose({"score", model, "--text", text})), "perplexity");
  };
  const double before = perplexity(kDemo), after = perplexity(out_);
  EXPECT_NEAR(Number(report, "perplexity_before"), before, 1e-9 * before);
  EXPECT_NEAR(Number(report, "perplexity_after"), after, 1e-9 * after);
  EXPECT_NEAR(Number(report, "rise"), after / before - 1.0, 1e-9);
  EXPECT_EQ(Number(report, "allowed_rise"), to_ == "int4" ? 0.03 : 0.001);
  EXPECT_LE(Number(report, "rise"), Number(report, "allowed_rise"));
  for (const auto& [field, model] :
       std::map<std::string, std::string>{{"bytes_before", kDemo}, {"bytes_after", out_}}) {
    EXPECT_EQ(Number(report, field),
              Number(Json(Hognose({"inspect", model, "--json"})), "weight_bytes"));
  }
  const core::Value short_report = Json(Quantize(kDemo, out_, to_, {"--json", "--force"}));
  EXPECT_EQ(Keys(short_report), "model out bytes_before bytes_after");
  const Outcome lines =
      Launch({.args = QuantizeArgs(kDemo, out_, to_, {"--calibration", "-", "--force"}),
              .input = kEnglish});
  EXPECT_TRUE(Done(lines));
  EXPECT_NE(lines.out.find("\nperplexity "), std::string::npos) << lines.out;
  EXPECT_EQ(lines.err, "");
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizeTest, ::testing::Values("int8", "int4", "bf16"),
                         [](const auto& info) { return info.param; });

// Every architecture, width and storage type of the fixtures, without a tokenizer or a text.
TEST(QuantizeFixturesTest, ComputeWhatTheirWeightsSay) {
  const TestFolder folder;
  size_t models = 0;
  for (const auto& entry : fs::directory_iterator(Fixture(""))) {
    const std::string model = entry.path().string(), out = folder / "out";
    for (const std::string to : {"int8", "int4"}) {
      SCOPED_TRACE(model + " " + to);
      const Outcome o = Quantize(model, out, to, {"--force", "--strict"});
      if (model.ends_with("original_mamba_layer_norm")) {  // which no command takes
        EXPECT_TRUE(Fails(o, 1, model + "/config.json: rms_norm: got false"));
        continue;
      }
      ASSERT_TRUE(Done(o));
      CheckQuantized(folder, model, out, to);
    }
    ++models;
  }
  EXPECT_GT(models, 40u);
}

// A model of bf16 loses nothing.
TEST(QuantizeToBF16Test, IsTheModel) {
  const TestFolder folder;
  for (const std::string name : {"mamba_bf16", "mamba2_bf16", "falcon_mamba_bf16"}) {
    const std::string ids = folder.Put("ids", FixtureIds(Fixture(name)));
    ASSERT_TRUE(Done(Quantize(Fixture(name), folder / "out", "bf16", {"--force"})));
    EXPECT_EQ(Logits(folder, folder / "out", ids), Logits(folder, Fixture(name), ids)) << name;
  }
}

TEST(QuantizeInMemoryTest, IsTheWrittenModel) {
  const TestFolder folder;
  for (const std::string to : {"int8", "int4"}) {
    ASSERT_TRUE(Done(Quantize(kDemo, folder / to, to)));
    const auto ids = [](std::vector<std::string> args) {
      args.insert(args.end(), {"-p", "She opened the door and", "-n", "60", "--temperature", "0",
                               "--ignore-eos", "--json"});
      return Ids(Json(Hognose(args)));
    };
    const auto in_memory = ids({"run", kDemo, "--quantize", to});
    EXPECT_EQ(in_memory.size(), 60u);
    EXPECT_EQ(in_memory, ids({"run", folder / to}));
    EXPECT_EQ(in_memory, ids({"run", folder / to, "-t", "3"}));
  }
}

// A state belongs to one set of weights.
TEST(QuantizeStateTest, IsOfOneModel) {
  const TestFolder folder;
  std::vector<std::string> models = {kDemo};
  for (const std::string to : {"int8", "int4"}) {
    ASSERT_TRUE(Done(Quantize(kDemo, folder / to, to)));
    models.push_back(folder / to);
  }
  const std::string state = folder / "state";
  for (const auto& model : models) {
    ASSERT_TRUE(Done(Hognose({"run", model, "-p", "Once", "-n", "4", "--state-out", state})));
    for (const auto& other : models) {
      const Outcome o = Hognose({"run", other, "--state-in", state, "-n", "4"});
      if (other == model) {
        EXPECT_TRUE(Done(o));
      } else {
        EXPECT_TRUE(Fails(o, 1, state + ": model: got "));
      }
    }
  }
}

}  // namespace
}  // namespace hognose::cli_test
