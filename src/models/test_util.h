// Building and running tiny checkpoints.
#pragma once

#include <array>
#include <vector>

#include "core/fp_env.h"
#include "models/registry.h"
#include "tests/support/status.h"
#include "tests/support/tiny_checkpoint.h"

namespace hognose::models {

inline constexpr std::string_view kConfig = "config.json: ", kWeights = "model.safetensors: ";

inline core::Status BuildStatus(const testing::TinyCheckpoint& checkpoint) {
  const core::TensorMap views = checkpoint.views();
  return Build({checkpoint.config, "config.json", views, "model.safetensors"}).status();
}

// The logits after a pass over two tokens and a step; every part of a model takes part.
inline std::vector<float> RunModel(const LanguageModel& model, std::array<int32_t, 3> ids) {
  core::ThreadPool pool(1);
  const core::FlushDenormals flush;
  auto workspace = model.NewWorkspace({pool}, 2, /*exact=*/true);
  auto state = nn::State::Create(model.state_shapes());
  const size_t v = model.logits_size();
  std::vector<float> logits(v);
  const Part two = {2, &*state}, one = {1, &*state};
  model.Forward(*workspace, std::span(ids).first(2), {&two, 1});
  model.Forward(*workspace, std::span(ids).last(1), {&one, 1});
  model.Logits(*workspace, 0, {logits.data(), 1, v, v});
  return logits;
}

// Builds, which must succeed, and runs.
inline std::vector<float> BuildAndRun(const testing::TinyCheckpoint& checkpoint) {
  const core::TensorMap views = checkpoint.views();
  const auto model = Build({checkpoint.config, "config.json", views, "model.safetensors"});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? RunModel(*model, {1, 2, 3}) : std::vector<float>();
}

}  // namespace hognose::models
