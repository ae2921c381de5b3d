// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/rng.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/test_util.h"
#include "runtime/session.h"
#include "tests/support/compare.h"
#include "tests/support/status.h"
#include "tests/support/tiny_checkpoint.h"

namespace hognose::runtime {

using SharedModel = std::shared_ptr<const Model>;

inline const std::string kFixtures = HOGNOSE_SOURCE_DIR "/tests/fixtures/models/";
inline const std::string kDemo = HOGNOSE_SOURCE_DIR "/models/demo";
// A LayerNorm checkpoint: refused (model_load_test).
inline constexpr std::string_view kRefusedFixture = "original_mamba_layer_norm";
// One of each kind of state and arithmetic.
inline constexpr std::string_view kSomeFixtures[] = {"mamba_basic", "mamba2_groups_4",
                                                     "mamba2_bf16", "falcon_mamba_bf16"};

inline std::vector<std::string> AllFixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) {
    const std::string name = entry.path().filename();
    if (name != kRefusedFixture) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline SharedModel LoadModel(const std::string& path, size_t threads = 2) {
  auto model = Model::Load(path, {.threads = threads});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

inline SharedModel LoadFixture(std::string_view name, size_t threads = 2) {
  return LoadModel(kFixtures + std::string(name), threads);
}

inline Session NewSession(const SharedModel& model, SessionOptions options = {}) {
  auto session = Session::Create(model, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(*session);
}

// A folder with this checkpoint.
inline void WriteModelFolder(const io::TestFolder& folder, const testing::TinyCheckpoint& c) {
  folder.Put("config.json", io::ToJson(c.config));
  const core::TensorMap views = c.views();
  const std::vector<std::pair<std::string, core::TensorView>> tensors(views.begin(), views.end());
  const auto status = io::WriteSafetensors(folder / "model.safetensors", tensors, {});
  EXPECT_TRUE(status.ok()) << status.message();
}

inline std::vector<int32_t> RandomIds(const Model& model, size_t count, uint64_t seed) {
  core::Rng rng(seed);
  std::vector<int32_t> ids(count);
  for (auto& id : ids) id = static_cast<int32_t>(rng.Below(model.lm.vocab));
  return ids;
}

inline std::vector<float> Copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// Everything that a session remembers, in the order of a state file.
inline std::vector<float> Memory(const SessionState& state) {
  std::vector<float> all = {static_cast<float>(state.position)};
  for (size_t i = 0; i < state.state.layers(); ++i) {
    const auto& s = state.state.shape(i);
    std::vector<float> conv(s.taps * s.channels), ssm(s.ssm_rows() * s.width);
    nn::ExportState(s, state.state.layer(i), conv.data(), ssm.data());
    all.insert(all.end(), conv.begin(), conv.end());
    all.insert(all.end(), ssm.begin(), ssm.end());
  }
  all.insert(all.end(), state.logits.begin(), state.logits.end());
  return all;
}

}  // namespace hognose::runtime
