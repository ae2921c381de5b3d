#include "train/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "codecs/decode.h"
#include "codecs/float16.h"
#include "tests/support/status.h"
#include "train/test_run.h"

namespace hognose::train {
namespace {

using testing::FailsAt;

// What decays, by the last words of its name; everything else doesn't.
const std::set<std::string> kDecays = {"in_proj.weight", "conv1d.weight",   "x_proj.weight",
                                       "dt_proj.weight", "out_proj.weight", "lm_head.weight"};
const std::set<std::string> kKept = {"A_log",           "D",
                                     "dt_bias",         "conv1d.bias",
                                     "dt_proj.bias",    "in_proj.bias",
                                     "out_proj.bias",   "norm.weight",
                                     "norm_f.weight",   "embeddings.weight",
                                     "embedding.weight"};

std::string LastWords(std::string_view name) {
  const size_t last = name.rfind('.');
  const std::string_view end = name.substr(last == std::string_view::npos ? 0 : last + 1);
  if (end != "weight" && end != "bias") return std::string(end);
  const size_t before = name.rfind('.', last - 1);
  return std::string(name.substr(before == std::string_view::npos ? 0 : before + 1));
}

TEST(ParametersTest, EveryTensorOfEveryArchitectureDecaysOrNot) {
  std::set<std::string> seen;
  for (const std::string model : {"mamba_basic", "mamba_untied", "mamba2_basic", "mamba2_untied",
                                  "mamba2_bias", "falcon_mamba_basic", "falcon_mamba_untied",
                                  "original_mamba", "original_mamba2_defaults"}) {
    const io::ModelFolder folder = OpenFixture(model);
    for (const auto& [name, tensor] : folder.tensors) {
      const std::string last = LastWords(name);
      ASSERT_TRUE(kDecays.contains(last) || kKept.contains(last)) << model << ": " << name;
      EXPECT_EQ(HasNoDecay(name), kKept.contains(last)) << model << ": " << name;
      seen.insert(last);
    }
  }
  EXPECT_EQ(seen.size(), kDecays.size() + kKept.size());
}

TEST(ParametersTest, OrderIsDecayedThenKept) {
  const io::ModelFolder folder = OpenFixture("mamba_untied");
  const auto frozen = [](std::string_view name) {
    return name.find("layers.0.mixer") != std::string_view::npos;
  };
  const Parameters p = MakeParameters(folder.tensors, {.frozen = frozen});
  size_t end = 0, elements = 0;
  int last_group = 0;
  for (const Parameter& q : p.trained()) {
    const int group = HasNoDecay(q.name) ? 1 : 0;
    EXPECT_GE(group, last_group) << q.name;
    last_group = group;
    EXPECT_FALSE(frozen(q.name));
    EXPECT_EQ(q.offset % 32, 0u);
    // The floats between tensors are zero.
    for (; end < q.offset; ++end) EXPECT_EQ(p.values()[end], 0.0f);
    EXPECT_EQ(end, q.offset);
    EXPECT_EQ(q.offset < p.decayed(), group == 0) << q.name;
    // The values are the checkpoint's.
    const core::TensorView& from = folder.tensors.at(q.name);
    std::vector<float> want(from.elements());
    codecs::Decode(from, 0, want);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), p.values().data + q.offset)) << q.name;
    end = q.offset + want.size();
    elements += want.size();
  }
  EXPECT_EQ(p.trained_elements(), elements);
  EXPECT_EQ(p.gradients().size, p.values().size);
  EXPECT_EQ(p.m().size, p.values().size);
  EXPECT_EQ(p.v().size, p.values().size);
  // Frozen ones stay where they are.
  size_t all = 0;
  for (const auto& [name, tensor] : folder.tensors) {
    all += tensor.elements();
    if (!frozen(name)) continue;
    EXPECT_EQ(p.tensors().at(name).data, tensor.data) << name;
  }
  EXPECT_EQ(p.elements(), all);
  for (const auto& [name, gradient] : p.gradient_map()) EXPECT_FALSE(frozen(name));
  EXPECT_EQ(p.value_map().size(), folder.tensors.size());
}

TEST(ParametersTest, OnlyTheMomentsAskedFor) {
  const io::ModelFolder folder = OpenFixture("mamba_basic");
  const Parameters sgd =
      MakeParameters(folder.tensors, {.second_moment = false, .first_moment = false});
  EXPECT_EQ(sgd.m().size, 0u);
  EXPECT_EQ(sgd.v().size, 0u);
  const Parameters all = MakeParameters(folder.tensors);
  EXPECT_GE(all.bytes(), sgd.bytes() + 2 * sizeof(float) * all.values().size);
}

TEST(ParametersTest, CopiesIn16BitsFollowTheValues) {
  core::ThreadPool pool(2);
  const io::ModelFolder folder = OpenFixture("mamba2_untied");
  for (const Precision precision : {Precision::kBF16, Precision::kF16}) {
    const auto frozen = [](std::string_view name) { return name == "lm_head.weight"; };
    Parameters p = MakeParameters(folder.tensors, {.frozen = frozen, .precision = precision});
    const core::DType dtype =
        precision == Precision::kBF16 ? core::DType::kBF16 : core::DType::kF16;
    size_t copies = 0;
    for (const float shift : {0.0f, 0.013f}) {
      for (size_t i = 0; i < p.values().size; ++i) p.values()[i] += shift;
      p.Update({pool});
      for (const Parameter& q : p.trained()) {
        const core::TensorView& read = p.tensors().at(q.name);
        ASSERT_EQ(read.elements(), q.view.elements());
        if (q.view.rank != 2 || q.name.ends_with("A_log")) {
          EXPECT_EQ(read.data, q.view.data) << q.name;
          continue;
        }
        ++copies;
        ASSERT_EQ(read.dtype, dtype) << q.name;
        for (size_t k = 0; k < q.view.elements(); ++k) {
          const float value = q.view.As<float>()[k];
          const uint16_t want = precision == Precision::kBF16 ? codecs::EncodeBF16(value).bits
                                                              : codecs::EncodeF16(value).bits;
          ASSERT_EQ(static_cast<const uint16_t*>(read.data)[k], want) << q.name;
        }
      }
    }
    EXPECT_GT(copies, 0u);
    // The frozen head is what it was.
    EXPECT_EQ(p.tensors().at("lm_head.weight").data, folder.tensors.at("lm_head.weight").data);
  }
}

TEST(ParametersTest, RefusesWhatIsNoFloat) {
  const io::ModelFolder folder = OpenFixture("mamba_basic");
  core::TensorMap tensors = folder.tensors;
  const std::vector<int8_t> codes(12);
  tensors["layers.0.codes"] = {codes.data(), core::DType::kI8, 2, {3, 4}};
  const auto p = Parameters::Create(tensors, "m.safetensors", {});
  EXPECT_TRUE(FailsAt(p.status(), "m.safetensors: layers.0.codes: got i8 [3, 4]",
                      {"want f32, bf16 or f16", "quantised"}));
}

}  // namespace
}  // namespace hognose::train
