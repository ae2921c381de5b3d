#include "runtime/quantize.h"

#include <functional>

#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

using codecs::Encoding;
using testing::CloseToScale;
using testing::SameBits;

using Tensors = std::vector<std::pair<std::string, core::TensorView>>;

constexpr QuantizeOptions kSchemes[] = {{Encoding::kInt8, 32},  {Encoding::kInt8, 64},
                                        {Encoding::kInt8, 128}, {Encoding::kInt4, 32},
                                        {Encoding::kInt4, 64},  {Encoding::kInt4, 128}};

std::string Name(const QuantizeOptions& o) {
  return (o.encoding == Encoding::kInt8 ? "int8/" : "int4/") + std::to_string(o.group);
}

Tensors List(const core::TensorMap& tensors) { return {tensors.begin(), tensors.end()}; }

void WriteModel(const io::TestFolder& folder, const core::Value& config, const Tensors& tensors) {
  folder.Put("config.json", io::ToJson(config));
  const auto status = io::WriteSafetensors(folder / "model.safetensors", tensors, {});
  ASSERT_TRUE(status.ok()) << status.message();
}

// The quantised matrices of `model` as f32: the same function without any quantised code.
struct Decoded {
  std::vector<std::vector<float>> memory;
  Tensors tensors;

  explicit Decoded(const Model& model) {
    const core::TensorMap& all = model.folder.tensors;
    for (const auto& [name, tensor] : all) {
      if (name.ends_with(".scales") || name.ends_with(".shape")) continue;
      const auto scales = all.find(name + ".scales");
      if (scales == all.end()) {
        tensors.emplace_back(name, tensor);
        continue;
      }
      const auto* shape = static_cast<const int64_t*>(all.find(name + ".shape")->second.data);
      codecs::WeightMatrix w;
      w.encoding = tensor.dtype == core::DType::kI8 ? Encoding::kInt8 : Encoding::kInt4;
      w.rows = static_cast<size_t>(shape[0]);
      w.cols = static_cast<size_t>(shape[1]);
      w.values = tensor;
      w.scales = scales->second;
      const size_t codes = tensor.shape[1] * (w.encoding == Encoding::kInt4 ? 2 : 1);
      w.group = codes / w.scales.shape[1];
      auto& values = memory.emplace_back(w.rows * w.cols);
      for (size_t m = 0; m < w.rows; ++m) {
        codecs::DecodeRow(w, m, {values.data() + m * w.cols, w.cols});
      }
      tensors.emplace_back(name,
                           core::TensorView{values.data(), core::DType::kF32, 2, {w.rows, w.cols}});
    }
  }
};

SharedModel LoadQuantized(const std::string& path, const QuantizeOptions& o, size_t threads = 2) {
  auto model = Model::Load(path, {.threads = threads, .strict = true, .quantize = o});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

std::vector<float> Logits(const SharedModel& model, std::span<const int32_t> ids,
                          SessionOptions options) {
  Session session = NewSession(model, options);
  std::vector<float> all;
  EXPECT_TRUE(session
                  .Score(ids,
                         [&](size_t, std::span<const float> row) {
                           all.insert(all.end(), row.begin(), row.end());
                           return true;
                         })
                  .ok());
  return all;
}

// 1e-4 of the largest logit in f32 and 3e-2 with rounded activations, as for every weight type.
TEST(Quantize, EveryFixtureComputesWithItsStoredWeights) {
  for (const std::string& name : AllFixtures()) {
    for (const QuantizeOptions& scheme : kSchemes) {
      SCOPED_TRACE(name + " " + Name(scheme));
      const auto model = LoadQuantized(kFixtures + name, scheme);
      const Decoded decoded(*model);
      const io::TestFolder folder;
      WriteModel(folder, model->folder.config, decoded.tensors);
      const auto plain = LoadModel(folder.path());
      const auto ids = RandomIds(*model, 30, 1);
      const auto want = Logits(plain, ids, {.exact = true});
      ASSERT_TRUE(CloseToScale(Logits(model, ids, {.exact = true}), want, 1e-4));
      ASSERT_TRUE(CloseToScale(Logits(model, ids, {}), want, 3e-2));
    }
  }
}

TEST(Quantize, SplitsAndThreadsHaveTheSameBits) {
  for (const std::string_view name : kSomeFixtures) {
    for (const QuantizeOptions& scheme : kSchemes) {
      const std::string path = kFixtures + std::string(name);
      const auto model = LoadQuantized(path, scheme);
      const auto ids = RandomIds(*model, 40, 2);
      const auto want = Logits(model, ids, {});
      for (const size_t piece : {1, 2, 7, 39}) {
        ASSERT_TRUE(SameBits(Logits(model, ids, {.piece = piece}), want)) << name << piece;
      }
      ASSERT_TRUE(SameBits(Logits(LoadQuantized(path, scheme, 5), ids, {}), want)) << name;
    }
  }
}

// A file of the result is the same model as the result in memory.
TEST(Quantize, AWrittenModelLoadsToTheSameBits) {
  for (const QuantizeOptions& scheme : kSchemes) {
    const auto model = LoadQuantized(kDemo, scheme);
    const io::TestFolder folder;
    WriteModel(folder, model->folder.config, List(model->folder.tensors));
    auto loaded = Model::Load(folder.path(), {.threads = 2, .strict = true});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ((*loaded)->parameters(), LoadModel(kDemo)->parameters());
    EXPECT_EQ((*loaded)->Digest(), model->Digest());
    const auto ids = RandomIds(*model, 20, 3);
    ASSERT_TRUE(SameBits(Logits(*loaded, ids, {}), Logits(model, ids, {}))) << Name(scheme);
  }
}

TEST(Quantize, BF16RoundsMatricesAndNothingElse) {
  const auto plain = LoadFixture("mamba2_basic");
  const auto model = LoadQuantized(kFixtures + "mamba2_basic", {Encoding::kPlain, 64});
  for (const auto& [name, tensor] : model->folder.tensors) {
    EXPECT_EQ(tensor.dtype, IsQuantizable(name) ? core::DType::kBF16 : core::DType::kF32) << name;
  }
  const auto ids = RandomIds(*plain, 20, 4);
  EXPECT_TRUE(CloseToScale(Logits(model, ids, {}), Logits(plain, ids, {}), 3e-2));
}

TEST(Quantize, AQuantisedModelIsRefused) {
  const auto model = LoadQuantized(kFixtures + "mamba_basic", {Encoding::kInt8, 64});
  const auto again = Quantize(model->exec(), model->folder.tensors, {Encoding::kInt4, 64}, "here");
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find("here: backbone.embeddings.weight: got i8"),
            std::string::npos)
      << again.status().message();
}

// What may be wrong with the three tensors of a matrix: one clear message each, no crash.
TEST(Quantize, BrokenQuantisedTensorsAreRefused) {
  const std::string name = "backbone.layers.0.mixer.in_proj.weight";
  struct Break {
    std::string_view what;
    std::function<void(core::TensorMap&)> apply;
    std::string_view message;
  };
  static const int64_t kZero[2] = {0, 5}, kHuge[2] = {int64_t{1} << 40, 5};
  const auto shape = [](const int64_t* sizes) {
    return core::TensorView{sizes, core::DType::kI64, 1, {2}};
  };
  const Break kBreaks[] = {
      {"no scales", [&](auto& t) { t.erase(name + ".scales"); }, ".scales: the tensor is missing"},
      {"no shape", [&](auto& t) { t.erase(name + ".shape"); }, "got i8"},
      {"zero rows", [&](auto& t) { t[name + ".shape"] = shape(kZero); }, ".shape"},
      {"huge rows", [&](auto& t) { t[name + ".shape"] = shape(kHuge); }, ".shape"},
      {"fewer scales", [&](auto& t) { --t[name + ".scales"].shape[0]; }, "scales"},
      {"fewer codes", [&](auto& t) { --t[name].shape[1]; }, "codes"},
      {"other codes", [&](auto& t) { t[name].dtype = core::DType::kBool; }, "got bool"},
      {"float scales", [&](auto& t) { t[name + ".scales"].dtype = core::DType::kF16; }, "scales"},
  };
  const auto model = LoadQuantized(kFixtures + "mamba2_basic", {Encoding::kInt8, 64});
  for (const Break& b : kBreaks) {
    SCOPED_TRACE(b.what);
    core::TensorMap tensors = model->folder.tensors;
    b.apply(tensors);
    const io::TestFolder folder;
    WriteModel(folder, model->folder.config, List(tensors));
    const auto loaded = Model::Load(folder.path(), {.threads = 1});
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.status().message().find(b.message), std::string::npos)
        << loaded.status().message();
    EXPECT_NE(loaded.status().message().find("model.safetensors"), std::string::npos)
        << loaded.status().message();
  }
}

}  // namespace
}  // namespace hognose::runtime
