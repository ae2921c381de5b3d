#include "runtime/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "runtime/state_container.h"

namespace hognose::runtime {
namespace {

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

core::Result<Sampler::State> ReadSampler(const io::Metadata& metadata, const std::string& path,
                                         size_t ids) {
  HOGNOSE_ASSIGN(const std::string rng_text, StateField(metadata, "sampler_rng", path));
  HOGNOSE_ASSIGN(const std::string recent_text, StateField(metadata, "sampler_recent", path));
  const auto words = ParseNumbers<uint64_t>(rng_text);
  const auto recent = ParseNumbers<int32_t>(recent_text);
  Sampler::State state;
  if (!words || words->size() != state.rng.size()) return DamagedState(path, "sampler_rng");
  std::copy(words->begin(), words->end(), state.rng.begin());
  if (!recent || recent->size() > Sampler::kRecent) return DamagedState(path, "sampler_recent");
  for (const int32_t id : *recent) {
    if (id < 0 || static_cast<size_t>(id) >= ids) return DamagedState(path, "sampler_recent");
  }
  state.recent = *recent;
  return state;
}

}  // namespace

core::Status WriteState(const std::string& path, const Session& session,
                        const Sampler::State& sampler, const std::string& text) {
  const SessionState& state = session.state();
  return WriteStateContainer(path, {.state = state.state,
                                    .logits = state.logits,
                                    .position = session.position(),
                                    .model = session.model().Digest(),
                                    .more = {{"sampler_rng", PrintNumbers(sampler.rng)},
                                             {"sampler_recent", PrintNumbers(sampler.recent)},
                                             {"text", ToHex(text)}}});
}

core::Result<SavedState> ReadState(const std::string& path, const Session& session) {
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path));
  return ReadState(file.bytes(), path, session);
}

core::Result<SavedState> ReadState(std::span<const uint8_t> bytes, const std::string& path,
                                   const Session& session) {
  HOGNOSE_ASSIGN(const OpenedState opened, OpenStateContainer(bytes, path));
  const io::Metadata& metadata = opened.tensors.metadata();
  HOGNOSE_TRY(CheckStateModel(opened, session.model().Digest(), path));
  SavedState saved;
  HOGNOSE_ASSIGN(saved.session, session.NewState());
  HOGNOSE_TRY(ReadStateLayers(opened, path, &saved.session.state, saved.session.logits));
  saved.session.position = opened.position;
  HOGNOSE_ASSIGN(saved.sampler, ReadSampler(metadata, path, session.model().lm.input_ids()));
  HOGNOSE_ASSIGN(const std::string hex, StateField(metadata, "text", path));
  const auto text = FromHex(hex);
  if (!text) return DamagedState(path, "text");
  saved.text = *text;
  return saved;
}

core::Result<StateSummary> ParseState(std::span<const uint8_t> bytes, const std::string& where) {
  HOGNOSE_ASSIGN(const OpenedState opened, OpenStateContainer(bytes, where));
  const io::Metadata& metadata = opened.tensors.metadata();
  StateSummary summary;
  HOGNOSE_ASSIGN(summary.version, StateField(metadata, "version", where));
  HOGNOSE_ASSIGN(summary.model, StateField(metadata, "model", where));
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
