// What a data file holds; `--data-format` by name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/status.h"

namespace hognose::train {

// kAuto: the reader of a task looks at the name and the first bytes.
enum class DataFormat : uint8_t { kAuto, kIds, kText, kJsonl, kCsv, kNpy };

inline core::Result<DataFormat> ParseDataFormat(std::string_view name) {
  using enum DataFormat;
  static constexpr std::pair<std::string_view, DataFormat> kNames[] = {
      {"auto", kAuto},   {"ids", kIds}, {"text", kText},
      {"jsonl", kJsonl}, {"csv", kCsv}, {"npy", kNpy}};
  for (const auto& [known, format] : kNames) {
    if (known == name) return format;
  }
  return core::Status::Usage(
      fmt::format("--data-format: got \"{}\", want auto, ids, text, jsonl, csv or npy", name));
}

}  // namespace hognose::train
