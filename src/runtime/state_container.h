// The layers' states as a file: what state files of all kinds of models share.
//
//   layers.I.conv [C, K], layers.I.ssm [E, N] or [H, P, N], language models' logits [V], all f32
//   metadata: format, version, model (digest), position, checksum (over all other bytes of the
//   file), and what else a kind of model needs
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "io/safetensors.h"
#include "nn/mixer.h"

namespace hognose::runtime {

struct StateContent {
  const nn::State& state;
  std::span<const float> logits = {};  // empty: none
  uint64_t position = 0;
  std::string model;  // digest
  io::Metadata more = {};
};
// Written aside and renamed: after a failure the old file is intact.
core::Status WriteStateContainer(const std::string& path, const StateContent& content);

struct OpenedState {
  io::SafetensorsFile tensors;
  uint64_t position = 0;
};
// Checks everything that needs no model. `bytes` must outlive the result.
core::Result<OpenedState> OpenStateContainer(std::span<const uint8_t> bytes,
                                             const std::string& where);
// Fails unless the state is that of the model with this digest.
core::Status CheckStateModel(const OpenedState& opened, std::string_view digest,
                             const std::string& where);
// Reads the layers and, if they are wanted, the logits. Other tensors are refused.
core::Status ReadStateLayers(const OpenedState& opened, const std::string& where, nn::State* state,
                             std::span<float> logits);

core::Result<std::string> StateField(const io::Metadata& metadata, std::string_view key,
                                     const std::string& where);
core::Status DamagedState(const std::string& where, std::string_view what);

}  // namespace hognose::runtime
