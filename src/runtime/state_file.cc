#include "runtime/state_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <deque>

#include "io/safetensors.h"
#include "io/hash.h"

namespace hognose::runtime {
namespace {

constexpr std::string_view kFormat = "hognose-state";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kChecksumKey = "\"checksum\":\"";
constexpr size_t kChecksumDigits = 32;

using Named = std::pair<std::string, core::TensorView>;

std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return hex;
}

std::optional<std::string> FromHex(std::string_view hex) {
  std::string bytes;
  if (hex.size() % 2 != 0) return std::nullopt;
  for (size_t i = 0; i < hex.size(); i += 2) {
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    if (error != std::errc() || end != hex.data() + i + 2) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

// Words separated by spaces.
template <typename T>
std::optional<std::vector<T>> ParseNumbers(std::string_view text) {
  std::vector<T> numbers;
  const char* p = text.data();
  const char* end = p + text.size();
  while (p < end) {
    T number{};
    const auto [next, error] = std::from_chars(p, end, number);
    if (error != std::errc() || (next < end && *next != ' ')) return std::nullopt;
    numbers.push_back(number);
    p = next < end ? next + 1 : next;
  }
  return numbers;
}

template <typename Range>
std::string PrintNumbers(const Range& numbers) {
  std::string text;
  for (const auto& number : numbers) text += fmt::format("{}{}", text.empty() ? "" : " ", number);
  return text;
}

std::vector<size_t> SsmShape(const nn::StateShape& s) {
  if (s.heads == 0) return {s.width, s.states};
  return {s.heads, s.width, s.states};
}

core::TensorView View(const float* data, const std::vector<size_t>& shape) {
  core::TensorView view{data, core::DType::kF32, shape.size(), {}};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  return view;
}

// The tensors of a session in the field's layout, with the memory that they point into.
struct Exported {
  std::deque<std::vector<float>> memory;  // a deque: references into it stay valid as it grows
  std::vector<Named> tensors;
};

Exported Export(const SessionState& state) {
  Exported out;
  for (size_t i = 0; i < state.state.layers(); ++i) {
    const nn::StateShape& s = state.state.shape(i);
    auto& conv = out.memory.emplace_back(s.channels * s.taps);
    auto& ssm = out.memory.emplace_back(s.ssm_rows() * s.width);
    nn::ExportState(s, state.state.layer(i), conv.data(), ssm.data());
    const auto name = [i](std::string_view part) { return fmt::format("layers.{}.{}", i, part); };
    out.tensors.emplace_back(name("conv"), View(conv.data(), {s.channels, s.taps}));
    out.tensors.emplace_back(name("ssm"), View(ssm.data(), SsmShape(s)));
  }
  out.tensors.emplace_back("logits", View(state.logits.data(), {state.logits.size()}));
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

core::Status Damaged(const std::string& where, std::string_view what) {
  return core::Status::Failed(fmt::format("{}: {}: the state file is damaged", where, what));
}

core::Status CheckBytes(std::span<const uint8_t> bytes, const std::string& where) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  uint64_t header_bytes = 0;
  if (all.size() < sizeof(header_bytes)) return Damaged(where, "header");
  std::memcpy(&header_bytes, all.data(), sizeof(header_bytes));
  if (header_bytes > all.size() - sizeof(header_bytes)) return Damaged(where, "header");
  std::string header(all.substr(0, sizeof(header_bytes) + header_bytes));
  const auto at = FindChecksum(header);
  if (!at) return Damaged(where, "checksum");
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

core::Result<std::string> Field(const io::Metadata& metadata, std::string_view key,
                                const std::string& where) {
  const auto it = metadata.find(key);
  if (it == metadata.end()) {
    return core::Status::Failed(fmt::format("{}: {}: the metadata field is missing", where, key));
  }
  return it->second;
}

core::Status Want(const std::string& got, std::string_view want, std::string_view key,
                  const std::string& where) {
  if (got == want) return {};
  return core::Status::Failed(fmt::format("{}: {}: got {}, want {}", where, key, got, want));
}

struct Opened {
  io::SafetensorsFile tensors;
  uint64_t position = 0;
};

core::Result<Opened> Check(std::span<const uint8_t> bytes, const std::string& where) {
  Opened opened;
  HOGNOSE_ASSIGN(opened.tensors, io::SafetensorsFile::Parse(bytes, where));
  const io::Metadata& metadata = opened.tensors.metadata();
  HOGNOSE_ASSIGN(const std::string format, Field(metadata, "format", where));
  HOGNOSE_TRY(Want(format, kFormat, "format", where));
  HOGNOSE_ASSIGN(const std::string version, Field(metadata, "version", where));
  HOGNOSE_TRY(Want(version, kVersion, "version", where));
  HOGNOSE_TRY(CheckBytes(bytes, where));
  HOGNOSE_ASSIGN(const std::string position, Field(metadata, "position", where));
  const auto number = ParseNumbers<uint64_t>(position);
  // The sum with what is fed later must not wrap around.
  if (!number || number->size() != 1 || number->front() > INT64_MAX) {
    return Damaged(where, "position");
  }
  opened.position = number->front();
  return opened;
}

// The values of a tensor of exactly this type and shape.
core::Result<const float*> Values(const Opened& opened, const std::string& name,
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

core::Status ReadTensors(const Opened& opened, const std::string& path, SessionState* state) {
  const size_t want = 2 * state->state.layers() + 1;
  if (opened.tensors.tensors().size() != want) {
    return core::Status::Failed(
        fmt::format("{}: got {} tensors, want {}", path, opened.tensors.tensors().size(), want));
  }
  for (size_t i = 0; i < state->state.layers(); ++i) {
    const nn::StateShape& s = state->state.shape(i);
    HOGNOSE_ASSIGN(const float* conv,
                   Values(opened, fmt::format("layers.{}.conv", i), {s.channels, s.taps}, path));
    HOGNOSE_ASSIGN(const float* ssm,
                   Values(opened, fmt::format("layers.{}.ssm", i), SsmShape(s), path));
    nn::ImportState(s, conv, ssm, state->state.layer(i));
  }
  HOGNOSE_ASSIGN(const float* logits, Values(opened, "logits", {state->logits.size()}, path));
  std::copy_n(logits, state->logits.size(), state->logits.data());
  state->position = opened.position;
  return {};
}

core::Result<Sampler::State> ReadSampler(const io::Metadata& metadata, const std::string& path,
                                         size_t ids) {
  HOGNOSE_ASSIGN(const std::string rng_text, Field(metadata, "sampler_rng", path));
  HOGNOSE_ASSIGN(const std::string recent_text, Field(metadata, "sampler_recent", path));
  const auto words = ParseNumbers<uint64_t>(rng_text);
  const auto recent = ParseNumbers<int32_t>(recent_text);
  Sampler::State state;
  if (!words || words->size() != state.rng.size()) return Damaged(path, "sampler_rng");
  std::copy(words->begin(), words->end(), state.rng.begin());
  if (!recent || recent->size() > Sampler::kRecent) return Damaged(path, "sampler_recent");
  for (const int32_t id : *recent) {
    if (id < 0 || static_cast<size_t>(id) >= ids) return Damaged(path, "sampler_recent");
  }
  state.recent = *recent;
  return state;
}

}  // namespace

core::Status WriteState(const std::string& path, const Session& session,
                        const Sampler::State& sampler, const std::string& text) {
  const Exported exported = Export(session.state());
  const io::Metadata metadata = {{"format", std::string(kFormat)},
                                 {"version", std::string(kVersion)},
                                 {"model", session.model().Digest()},
                                 {"position", fmt::format("{}", session.position())},
                                 {"sampler_rng", PrintNumbers(sampler.rng)},
                                 {"sampler_recent", PrintNumbers(sampler.recent)},
                                 {"text", ToHex(text)},
                                 {"checksum", std::string(kChecksumDigits, '0')}};
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

core::Result<SavedState> ReadState(const std::string& path, const Session& session) {
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path));
  return ReadState(file.bytes(), path, session);
}

core::Result<SavedState> ReadState(std::span<const uint8_t> bytes, const std::string& path,
                                   const Session& session) {
  HOGNOSE_ASSIGN(const Opened opened, Check(bytes, path));
  const io::Metadata& metadata = opened.tensors.metadata();
  HOGNOSE_ASSIGN(const std::string model, Field(metadata, "model", path));
  HOGNOSE_TRY(Want(model, session.model().Digest(), "model", path));
  SavedState saved;
  HOGNOSE_ASSIGN(saved.session, session.NewState());
  HOGNOSE_TRY(ReadTensors(opened, path, &saved.session));
  HOGNOSE_ASSIGN(saved.sampler, ReadSampler(metadata, path, session.model().lm.input_ids()));
  HOGNOSE_ASSIGN(const std::string hex, Field(metadata, "text", path));
  const auto text = FromHex(hex);
  if (!text) return Damaged(path, "text");
  saved.text = *text;
  return saved;
}

core::Result<StateSummary> ParseState(std::span<const uint8_t> bytes, const std::string& where) {
  HOGNOSE_ASSIGN(const Opened opened, Check(bytes, where));
  const io::Metadata& metadata = opened.tensors.metadata();
  StateSummary summary;
  HOGNOSE_ASSIGN(summary.version, Field(metadata, "version", where));
  HOGNOSE_ASSIGN(summary.model, Field(metadata, "model", where));
  summary.position = opened.position;
  summary.tensors = opened.tensors.tensors();
  for (auto& [name, tensor] : summary.tensors) {
    summary.bytes += tensor.bytes();
    summary.layers += name.ends_with(".ssm");
    tensor.data = nullptr;
  }
  return summary;
}

core::Result<StateSummary> InspectState(const std::string& path) {
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path));
  return ParseState(file.bytes(), path);
}

}  // namespace hognose::runtime
