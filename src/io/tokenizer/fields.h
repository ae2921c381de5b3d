// Reading tokenizer.json field by field: every error names the file and the field.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/value.h"

namespace hognose::io::tokenizer {

// A value and where it stands: "tokenizer.json: pre_tokenizer.pretokenizers[1]".
struct Field {
  const core::Value* value = nullptr;
  std::string path;

  // The member `key`, whose value is nullptr if there is none.
  Field Member(std::string_view key) const;
  bool Has() const { return value != nullptr && !value->is_null(); }
};

// "<path>: got <what stands there>, want <want>".
core::Status Wrong(const Field& field, std::string_view want);

// The member `key` of `parent`. Without `fallback` it must be there (and not null).
core::Result<bool> ReadBool(const Field& parent, std::string_view key,
                            std::optional<bool> fallback = std::nullopt);
core::Result<std::string> ReadString(const Field& parent, std::string_view key,
                                     std::optional<std::string> fallback = std::nullopt);
core::Result<int64_t> ReadInt(const Field& parent, std::string_view key, int64_t low, int64_t high);
// A string of exactly one character.
core::Result<std::string> ReadChar(const Field& parent, std::string_view key,
                                   std::optional<std::string> fallback = std::nullopt);
core::Result<std::vector<Field>> ReadArray(const Field& parent, std::string_view key);
// The index of the member's string in `names`.
core::Result<size_t> ReadChoice(const Field& parent, std::string_view key,
                                std::span<const std::string_view> names,
                                std::optional<size_t> fallback = std::nullopt);

// One row of a table of stages that have a "type".
template <typename Make>
struct Kind {
  std::string_view name;
  Make make;
};

// The `make` of the row that the member "type" names.
template <typename Make, size_t N>
core::Result<Make> ReadKind(const Field& field, const Kind<Make> (&kinds)[N]) {
  if (field.value->AsObject() == nullptr) return Wrong(field, "null or an object");
  std::string_view names[N];
  for (size_t i = 0; i < N; ++i) names[i] = kinds[i].name;
  HOGNOSE_ASSIGN(const size_t kind, ReadChoice(field, "type", names));
  return kinds[kind].make;
}

}  // namespace hognose::io::tokenizer
