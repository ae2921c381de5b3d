#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "io/hash.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace hognose::train {
namespace {

using NamedTensors = std::vector<std::pair<std::string, core::TensorView>>;

constexpr std::string_view kVersion = "1";

// Every tensor of the state, in the order of the parameters.
NamedTensors StateTensors(const Parameters& parameters) {
  NamedTensors tensors;
  for (const Parameter& p : parameters.trained()) {
    tensors.emplace_back("w." + p.name, p.view);
    for (const auto& [prefix, all] : {std::pair("m.", parameters.m()), {"v.", parameters.v()}}) {
      if (all.size == 0) continue;
      core::TensorView view = p.view;
      view.data = all.data + p.offset;
      tensors.emplace_back(prefix + p.name, view);
    }
  }
  return tensors;
}

// Of all tensors and all metadata but the checksum itself.
std::string Checksum(const NamedTensors& tensors, const io::Metadata& metadata) {
  io::Hasher hasher;
  for (const auto& [name, text] : metadata) {
    if (name == "checksum") continue;
    hasher.Add(fmt::format("{}={};", name, text));
  }
  for (const auto& [name, tensor] : tensors) {
    hasher.Add(name);
    hasher.Add({static_cast<const char*>(tensor.data), tensor.bytes()});
  }
  return hasher.Hex();
}

template <typename T>
core::Result<T> Read(const io::SafetensorsFile& file, std::string_view name) {
  const auto it = file.metadata().find(name);
  T value{};
  if (it != file.metadata().end()) {
    const std::string& text = it->second;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return value;
  }
  return core::Status::Failed(fmt::format("{}: {}: got {}, want a number", file.path(), name,
                                          it == file.metadata().end() ? "nothing" : it->second));
}

// The first field in which two objects differ, as "name: got x, want y".
core::Status SameSettings(const io::SafetensorsFile& file, const core::Value& want) {
  const auto it = file.metadata().find("settings");
  const std::string text = it == file.metadata().end() ? "{}" : it->second;
  HOGNOSE_ASSIGN(const core::Value got, io::ParseJson(text, file.path() + ": settings"));
  for (const auto& [name, value] : *want.AsObject()) {
    const core::Value* saved = got.Find(name);
    const std::string saved_text = saved == nullptr ? "nothing" : io::ToJson(*saved);
    if (saved_text == io::ToJson(value)) continue;
    return core::Status::Failed(
        fmt::format("{}: {}: got {} when the run began, {} now, want the same", file.path(), name,
                    saved_text, io::ToJson(value)));
  }
  return {};
}

core::Status NoOtherTensors(const io::SafetensorsFile& file, const NamedTensors& want) {
  for (const auto& [name, tensor] : file.tensors()) {
    const auto same = [&](const auto& wanted) { return wanted.first == name; };
    if (std::any_of(want.begin(), want.end(), same)) continue;
    return core::Status::Failed(fmt::format("{}: {}: got {}, want no such tensor", file.path(),
                                            name, core::ToString(tensor)));
  }
  return {};
}

}  // namespace

core::Status SaveState(const std::string& path, const Parameters& parameters,
                       const Trainer& trainer, const core::Value& settings) {
  const NamedTensors tensors = StateTensors(parameters);
  const LossScale& scale = trainer.loss_scale();
  io::Metadata metadata = {{"version", std::string(kVersion)},
                           {"step", fmt::format("{}", trainer.step())},
                           {"updates", fmt::format("{}", trainer.updates())},
                           {"scale", fmt::format("{}", scale.scale)},
                           {"good_steps", fmt::format("{}", scale.good_steps)},
                           {"settings", io::ToJson(settings)}};
  metadata["checksum"] = Checksum(tensors, metadata);
  return io::WriteSafetensors(path, tensors, metadata);
}

core::Status LoadState(const std::string& path, Parameters& parameters, Trainer& trainer,
                       const core::Value& settings) {
  HOGNOSE_ASSIGN(const io::SafetensorsFile file, io::SafetensorsFile::Open(path));
  const auto version = file.metadata().find("version");
  if (version == file.metadata().end() || version->second != kVersion) {
    const bool none = version == file.metadata().end();
    return core::Status::Failed(
        fmt::format("{}: version: got {}, want {}, the state of a training run", path,
                    none ? "nothing" : version->second, kVersion));
  }
  HOGNOSE_TRY(SameSettings(file, settings));
  LossScale scale;
  HOGNOSE_ASSIGN(const auto step, Read<size_t>(file, "step"));
  HOGNOSE_ASSIGN(const auto updates, Read<size_t>(file, "updates"));
  HOGNOSE_ASSIGN(scale.scale, Read<double>(file, "scale"));
  HOGNOSE_ASSIGN(scale.good_steps, Read<uint64_t>(file, "good_steps"));
  const NamedTensors to = StateTensors(parameters);
  NamedTensors from;
  for (const auto& [name, tensor] : to) {
    const auto it = file.tensors().find(name);
    const bool found = it != file.tensors().end();
    if (!found || it->second.dtype != tensor.dtype || it->second.rank != tensor.rank ||
        !std::equal(tensor.dims().begin(), tensor.dims().end(), it->second.dims().begin())) {
      return core::Status::Failed(fmt::format("{}: {}: got {}, want {}", path, name,
                                              found ? core::ToString(it->second) : "nothing",
                                              core::ToString(tensor)));
    }
    from.emplace_back(name, it->second);
  }
  HOGNOSE_TRY(NoOtherTensors(file, to));
  const auto checksum = file.metadata().find("checksum");
  const std::string want = Checksum(from, file.metadata());
  if (checksum == file.metadata().end() || checksum->second != want) {
    return core::Status::Failed(
        fmt::format("{}: checksum: got {}, want {}: not what was saved", path,
                    checksum == file.metadata().end() ? "nothing" : checksum->second, want));
  }
  for (size_t i = 0; i < to.size(); ++i) {
    // All of them are parts of the parameters' own memory.
    auto* values = const_cast<float*>(to[i].second.As<float>());
    std::copy_n(from[i].second.As<float>(), from[i].second.elements(), values);
  }
  trainer.Restore(step, updates, scale);
  return {};
}

core::Status SaveModel(const std::string& path, const Parameters& parameters) {
  const core::TensorMap map = parameters.value_map();
  return io::WriteSafetensors(path, {map.begin(), map.end()}, {{"format", "pt"}});
}

core::Status SaveGradients(const std::string& path, const Parameters& parameters, float factor) {
  std::vector<std::vector<float>> scaled;
  NamedTensors tensors;
  for (const Parameter& p : parameters.trained()) {
    const core::Vec<float> gradient = parameters.gradient(p);
    scaled.emplace_back(gradient.data, gradient.data + gradient.size);
    for (float& value : scaled.back()) value *= factor;
    core::TensorView view = p.view;
    view.data = scaled.back().data();
    tensors.emplace_back(p.name, view);
  }
  return io::WriteSafetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace hognose::train
