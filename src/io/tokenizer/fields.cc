#include "io/tokenizer/fields.h"

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

std::string Describe(const Field& field) {
  constexpr size_t kLongest = 40;
  if (field.value == nullptr) return "nothing";
  if (const auto* i = field.value->AsInt()) return std::to_string(*i);
  if (const auto* b = field.value->AsBool()) return *b ? "true" : "false";
  const auto* s = field.value->AsString();
  if (s == nullptr) return std::string(field.value->TypeName());
  if (s->size() <= kLongest) return '"' + *s + '"';
  size_t cut = kLongest;
  while (cut > 0 && IsContinuation((*s)[cut])) --cut;
  return '"' + s->substr(0, cut) + "...\"";
}

}  // namespace

Field Field::Member(std::string_view key) const {
  const core::Value* member = value == nullptr ? nullptr : value->Find(key);
  const bool at_root = path.ends_with(": ");
  return {member, path + (at_root ? "" : ".") + std::string(key)};
}

core::Status Wrong(const Field& field, std::string_view want) {
  return core::Status::Failed(field.path + ": got " + Describe(field) + ", want " +
                              std::string(want));
}

core::Result<bool> ReadBool(const Field& parent, std::string_view key,
                            std::optional<bool> fallback) {
  const Field field = parent.Member(key);
  if (!field.Has() && fallback) return *fallback;
  if (field.Has()) {
    if (const auto* b = field.value->AsBool()) return *b;
  }
  return Wrong(field, "true or false");
}

core::Result<std::string> ReadString(const Field& parent, std::string_view key,
                                     std::optional<std::string> fallback) {
  const Field field = parent.Member(key);
  if (!field.Has() && fallback) return *fallback;
  if (field.Has()) {
    if (const auto* s = field.value->AsString()) return *s;
  }
  return Wrong(field, "a string");
}

core::Result<int64_t> ReadInt(const Field& parent, std::string_view key, int64_t low,
                              int64_t high) {
  const Field field = parent.Member(key);
  if (field.Has()) {
    if (const auto* i = field.value->AsInt(); i != nullptr && low <= *i && *i <= high) return *i;
  }
  return Wrong(field, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
}

core::Result<std::string> ReadChar(const Field& parent, std::string_view key,
                                   std::optional<std::string> fallback) {
  HOGNOSE_ASSIGN(std::string text, ReadString(parent, key, std::move(fallback)));
  if (text.empty() || CharLength(text[0]) != text.size()) {
    return Wrong(parent.Member(key), "one character");
  }
  return text;
}

core::Result<std::vector<Field>> ReadArray(const Field& parent, std::string_view key) {
  const Field field = parent.Member(key);
  const auto* array = field.Has() ? field.value->AsArray() : nullptr;
  if (array == nullptr) return Wrong(field, "an array");
  std::vector<Field> elements;
  elements.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    elements.push_back({&(*array)[i], field.path + "[" + std::to_string(i) + "]"});
  }
  return elements;
}

core::Result<size_t> ReadChoice(const Field& parent, std::string_view key,
                                std::span<const std::string_view> names,
                                std::optional<size_t> fallback) {
  const Field field = parent.Member(key);
  if (!field.Has() && fallback) return *fallback;
  if (field.Has()) {
    if (const auto* s = field.value->AsString()) {
      for (size_t i = 0; i < names.size(); ++i) {
        if (*s == names[i]) return i;
      }
    }
  }
  std::string want = names.size() > 1 ? "one of " : "";
  for (size_t i = 0; i < names.size(); ++i) {
    want += (i > 0 ? ", \"" : "\"") + std::string(names[i]) + '"';
  }
  return Wrong(field, want);
}

}  // namespace hognose::io::tokenizer
