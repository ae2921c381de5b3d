#include "models/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace hognose::models {
namespace {

// The number that a limit names in any of its published spellings.
std::optional<double> LimitNumber(const core::Value& value) {
  double number = 0.0;
  if (value.AsDouble(&number)) return number;
  const core::Value* spelled = value.Find("__float__");
  const std::string* text = (spelled != nullptr ? *spelled : value).AsString();
  if (text == nullptr) return std::nullopt;
  for (const std::string_view name : {"Infinity", "+Infinity", "inf", "+inf"}) {
    if (*text == name) return std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

std::string Describe(const core::Value& value) {
  double number = 0.0;
  if (value.AsDouble(&number)) return fmt::format("{}", number);
  if (const auto* text = value.AsString()) return fmt::format("\"{}\"", *text);
  if (const auto* b = value.AsBool()) return *b ? "true" : "false";
  return std::string(value.TypeName());
}

}  // namespace

const core::Value* Fields::Find(std::string_view name) const {
  const core::Value* value = object_.Find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::Fault(std::string_view name, const core::Value& got, std::string_view want) {
  if (!status_.ok()) return;
  status_ = core::Status::Failed(
      fmt::format("{}: {}: got {}, want {}", where_, name, Describe(got), want));
}

std::pair<std::string_view, const core::Value*> Fields::FindAny(
    std::initializer_list<std::string_view> names) const {
  for (const auto name : names) {
    if (const core::Value* value = Find(name)) return {name, value};
  }
  return {};
}

std::optional<SizeField> Fields::Size(std::initializer_list<std::string_view> names) {
  // Products of two sizes stay inside 64 bits.
  constexpr int64_t kMax = int64_t{1} << 31;
  const auto [name, value] = FindAny(names);
  if (value == nullptr) return std::nullopt;
  const int64_t* number = value->AsInt();
  if (number != nullptr && *number >= 1 && *number <= kMax) {
    return SizeField{name, static_cast<size_t>(*number)};
  }
  const std::string* text = value->AsString();
  if (text == nullptr || *text != "auto") {
    Fault(name, *value, fmt::format("an integer from 1 to {}", kMax));
  }
  return std::nullopt;
}

std::optional<bool> Fields::Bool(std::initializer_list<std::string_view> names) {
  const auto [name, value] = FindAny(names);
  if (value == nullptr) return std::nullopt;
  if (const bool* b = value->AsBool()) return *b;
  Fault(name, *value, "true or false");
  return std::nullopt;
}

std::optional<double> Fields::Number(std::string_view name) {
  const core::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  double number = 0.0;
  if (value->AsDouble(&number) && std::isfinite(number)) return number;
  Fault(name, *value, "a finite number");
  return std::nullopt;
}

std::optional<float> Fields::Epsilon(std::string_view name) {
  const auto number = Number(name);
  if (!number) return std::nullopt;
  if (*number >= 0.0 && *number <= 1.0) return static_cast<float>(*number);
  Fault(name, *Find(name), "a number from 0 to 1");
  return std::nullopt;
}

std::optional<std::string> Fields::Text(std::string_view name) {
  const core::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = value->AsString()) return *text;
  Fault(name, *value, "a string");
  return std::nullopt;
}

std::optional<std::pair<float, float>> Fields::Limits(
    std::initializer_list<std::string_view> names) {
  const auto [name, value] = FindAny(names);
  if (value == nullptr) return std::nullopt;
  if (const auto* pair = value->AsArray(); pair != nullptr && pair->size() == 2) {
    const auto low = LimitNumber((*pair)[0]), high = LimitNumber((*pair)[1]);
    constexpr double kMax = std::numeric_limits<float>::max();
    if (low && high && *low >= 0.0 && *low <= kMax && *low <= *high) {
      return std::pair{static_cast<float>(*low), *high <= kMax
                                                     ? static_cast<float>(*high)
                                                     : std::numeric_limits<float>::infinity()};
    }
  }
  Fault(name, *value, "[low, high] with 0 <= low <= high");
  return std::nullopt;
}

std::vector<int64_t> Fields::Ints(std::string_view name) {
  const core::Value* value = Find(name);
  if (value == nullptr) return {};
  if (const int64_t* one = value->AsInt()) return {*one};
  std::vector<int64_t> ints;
  if (const auto* array = value->AsArray()) {
    for (const auto& element : *array) {
      if (const int64_t* one = element.AsInt()) ints.push_back(*one);
    }
    if (ints.size() == array->size()) return ints;
  }
  Fault(name, *value, "an integer or an array of integers");
  return {};
}

core::Status Agree(const Fields& fields, const std::optional<SizeField>& configured, size_t derived,
                   const std::string& tensor) {
  if (!configured || configured->value == derived) return {};
  return core::Status::Failed(fmt::format("{}: {}: got {}, want {} as the shape of {} says",
                                          fields.where(), configured->name, configured->value,
                                          derived, tensor));
}

}  // namespace hognose::models
