#include "runtime/state_container.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "io/hash.h"

namespace hognose::runtime {
namespace {

constexpr std::string_view kFormat = "hognose-state";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kChecksumKey = "\"checksum\":\"";
constexpr size_t kChecksumDigits = 32;

using Named = std::pair<std::string, core::TensorView>;

std::vector<size_t> SsmShape(const nn::StateShape& s) {
  if (s.heads == 0) return {s.width, s.states};
  return {s.heads, s.width, s.states};
}

core::TensorView View(const float* data, const std::vector<size_t>& shape) {
  core::TensorView view{data, core::DType::kF32, shape.size(), {}};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  return view;
}

// The tensors of a state in the field's layout, with the memory that they point into.
struct Exported {
  std::deque<std::vector<float>> memory;  // a deque: references into it stay valid as it grows
  std::vector<Named> tensors;
};

Exported Export(const StateContent& content) {
  const nn::State& state = content.state;
  Exported out;
  for (size_t i = 0; i < state.layers(); ++i) {
    const nn::StateShape& s = state.shape(i);
    auto& conv = out.memory.emplace_back(s.channels * s.taps);
    auto& ssm = out.memory.emplace_back(s.ssm_rows() * s.width);
    nn::ExportState(s, state.layer(i), conv.data(), ssm.data());
    const auto name = [i](std::string_view part) { return fmt::format("layers.{}.{}", i, part); };
    out.tensors.emplace_back(name("conv"), View(conv.data(), {s.channels, s.taps}));
    out.tensors.emplace_back(name("ssm"), View(ssm.data(), SsmShape(s)));
  }
  const std::span<const float> logits = content.logits;
  if (!logits.empty()) out.tensors.emplace_back("logits", View(logits.data(), {logits.size()}));
  return out;
}

// Where the checksum's digits stand in the header.
std::optional<size_t> FindChecksum(std::string_view header) {
  const size_t key = header.find(kChecksumKey);
  if (key == std::string_view::npos) return std::nullopt;
  const size_t begin = key + kChecksumKey.size();
  if (begin + kChecksumDigits > header.size()) return std::nullopt;
  return begin;
}

std::string_view Bytes(const core::TensorView& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.bytes()};
}

core::Status CheckBytes(std::span<const uint8_t> bytes, const std::string& where) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  uint64_t header_bytes = 0;
  if (all.size() < sizeof(header_bytes)) return DamagedState(where, "header");
  std::memcpy(&header_bytes, all.data(), sizeof(header_bytes));
  if (header_bytes > all.size() - sizeof(header_bytes)) return DamagedState(where, "header");
  std::string header(all.substr(0, sizeof(header_bytes) + header_bytes));
  const auto at = FindChecksum(header);
  if (!at) return DamagedState(where, "checksum");
  const std::string stored = header.substr(*at, kChecksumDigits);
  header.replace(*at, kChecksumDigits, kChecksumDigits, '0');
  io::Hasher hasher;
  hasher.Add(header);
  hasher.Add(all.substr(header.size()));
  const std::string computed = hasher.Hex();
  if (stored == computed) return {};
  return core::Status::Failed(fmt::format(
      "{}: checksum: got {}, want {}: the state file is damaged", where, computed, stored));
}

core::Status Want(const std::string& got, std::string_view want, std::string_view key,
                  const std::string& where) {
  if (got == want) return {};
  return core::Status::Failed(fmt::format("{}: {}: got {}, want {}", where, key, got, want));
}

// The values of a tensor of exactly this type and shape.
core::Result<const float*> Values(const OpenedState& opened, const std::string& name,
                                  const std::vector<size_t>& shape, const std::string& path) {
  const auto it = opened.tensors.tensors().find(name);
  if (it == opened.tensors.tensors().end()) {
    return core::Status::Failed(fmt::format("{}: {}: the tensor is missing", path, name));
  }
  const core::TensorView& got = it->second;
  const core::TensorView want = View(nullptr, shape);
  if (got.dtype != want.dtype || !std::ranges::equal(got.dims(), want.dims())) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want {}", path, name,
                                            core::ToString(got), core::ToString(want)));
  }
  return got.As<float>();
}

}  // namespace

core::Status DamagedState(const std::string& where, std::string_view what) {
  return core::Status::Failed(fmt::format("{}: {}: the state file is damaged", where, what));
}

core::Result<std::string> StateField(const io::Metadata& metadata, std::string_view key,
                                     const std::string& where) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) {
    return core::Status::Failed(fmt::format("{}: {}: the metadata field is missing", where, key));
  }
  return it->second;
}

core::Result<OpenedState> OpenStateContainer(std::span<const uint8_t> bytes,
                                             const std::string& where) {
  OpenedState opened;
  HOGNOSE_ASSIGN(opened.tensors, io::SafetensorsFile::Parse(bytes, where));
  const io::Metadata& metadata = opened.tensors.metadata();
  HOGNOSE_ASSIGN(const std::string format, StateField(metadata, "format", where));
  HOGNOSE_TRY(Want(format, kFormat, "format", where));
  HOGNOSE_ASSIGN(const std::string version, StateField(metadata, "version", where));
  HOGNOSE_TRY(Want(version, kVersion, "version", where));
  HOGNOSE_TRY(CheckBytes(bytes, where));
  HOGNOSE_ASSIGN(const std::string position, StateField(metadata, "position", where));
  const char* end = position.data() + position.size();
  const auto parsed = std::from_chars(position.data(), end, opened.position);
  // The sum with what is fed later must not wrap around.
  if (parsed.ec != std::errc() || parsed.ptr != end || opened.position > INT64_MAX) {
    return DamagedState(where, "position");
  }
  return opened;
}

core::Status CheckStateModel(const OpenedState& opened, std::string_view digest,
                             const std::string& where) {
  HOGNOSE_ASSIGN(const std::string model, StateField(opened.tensors.metadata(), "model", where));
  return Want(model, digest, "model", where);
}

core::Status ReadStateLayers(const OpenedState& opened, const std::string& path, nn::State* state,
                             std::span<float> logits) {
  const size_t want = 2 * state->layers() + !logits.empty();
  if (opened.tensors.tensors().size() != want) {
    return core::Status::Failed(
        fmt::format("{}: got {} tensors, want {}", path, opened.tensors.tensors().size(), want));
  }
  for (size_t i = 0; i < state->layers(); ++i) {
    const nn::StateShape& s = state->shape(i);
    HOGNOSE_ASSIGN(const float* conv,
                   Values(opened, fmt::format("layers.{}.conv", i), {s.channels, s.taps}, path));
    HOGNOSE_ASSIGN(const float* ssm,
                   Values(opened, fmt::format("layers.{}.ssm", i), SsmShape(s), path));
    nn::ImportState(s, conv, ssm, state->layer(i));
  }
  if (logits.empty()) return {};
  HOGNOSE_ASSIGN(const float* values, Values(opened, "logits", {logits.size()}, path));
  std::copy_n(values, logits.size(), logits.data());
  return {};
}

core::Status WriteStateContainer(const std::string& path, const StateContent& content) {
  const Exported exported = Export(content);
  io::Metadata metadata = content.more;
  metadata["format"] = kFormat;
  metadata["version"] = kVersion;
  metadata["model"] = content.model;
  metadata["position"] = fmt::format("{}", content.position);
  metadata["checksum"] = std::string(kChecksumDigits, '0');
  std::string header = io::SafetensorsHeader(exported.tensors, metadata);
  io::Hasher hasher;
  hasher.Add(header);
  for (const auto& [name, tensor] : exported.tensors) hasher.Add(Bytes(tensor));
  const auto at = FindChecksum(header);
  HOGNOSE_CHECK(at.has_value());
  header.replace(*at, kChecksumDigits, hasher.Hex());
  return io::WriteFile(path, [&](io::FileWriter& writer) {
    writer.Write({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
    for (const auto& [name, tensor] : exported.tensors) {
      writer.Write({static_cast<const uint8_t*>(tensor.data), tensor.bytes()});
    }
    return core::Status();
  });
}

}  // namespace hognose::runtime
