// The state file: everything that a sequence remembers, as a safetensors file that numpy reads.
//
//   layers.I.conv [C, K], layers.I.ssm [E, N] or [H, P, N], logits [V], all f32
//   metadata: format, version, model (digest), position, sampler, text (what was not printed yet),
//   checksum (over all other bytes of the file)
//
// Any damaged byte, another model, another version: refused before anything changes.
#pragma once

#include <string>

#include "core/status.h"
#include "runtime/sampler.h"
#include "runtime/session.h"

namespace hognose::runtime {

struct SavedState {
  SessionState session;
  Sampler::State sampler;
  std::string text;  // TextStream::Save()
};

// Written aside and renamed: after a failure the old file is intact.
core::Status WriteState(const std::string& path, const Session& session,
                        const Sampler::State& sampler, const std::string& text);

core::Result<SavedState> ReadState(const std::string& path, const Session& session);
// The same over bytes in memory (tests, fuzzing); `where` begins messages.
core::Result<SavedState> ReadState(std::span<const uint8_t> bytes, const std::string& where,
                                   const Session& session);

// What a state file says of itself, without a model (`inspect`); the checksum is verified.
struct StateSummary {
  std::string version, model;
  uint64_t position = 0;
  size_t layers = 0, bytes = 0;
  core::TensorMap tensors;  // names, types and shapes; no data
};
core::Result<StateSummary> InspectState(const std::string& path);

// The same over bytes in memory (fuzzing).
core::Result<StateSummary> ParseState(std::span<const uint8_t> bytes, const std::string& where);

}  // namespace hognose::runtime
