// What parses, prints; what is printed parses again, to an equal value.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "io/json.h"

namespace hognose::io {
namespace {

using core::Value;

bool Equal(const Value& a, const Value& b) {
  if (a.TypeName() != b.TypeName()) return false;
  if (const auto* x = a.AsBool()) return *x == *b.AsBool();
  if (const auto* x = a.AsInt()) return *x == *b.AsInt();
  if (const auto* x = a.AsString()) return *x == *b.AsString();
  double p = 0, q = 0;
  if (a.AsDouble(&p)) {
    return b.AsDouble(&q) && std::bit_cast<uint64_t>(p) == std::bit_cast<uint64_t>(q);
  }
  if (const auto* x = a.AsArray()) {
    return std::equal(x->begin(), x->end(), b.AsArray()->begin(), b.AsArray()->end(), Equal);
  }
  if (const auto* x = a.AsObject()) {
    const auto same = [](const Value::Member& m, const Value::Member& n) {
      return m.first == n.first && Equal(m.second, n.second);
    };
    return std::equal(x->begin(), x->end(), b.AsObject()->begin(), b.AsObject()->end(), same);
  }
  return true;
}

void CheckTree(const Value& value, size_t depth) {
  if (const auto* s = value.AsString()) HOGNOSE_CHECK(IsUtf8(*s));
  if (const auto* array = value.AsArray()) {
    HOGNOSE_CHECK(depth < kMaxJsonDepth);
    for (const auto& v : *array) CheckTree(v, depth + 1);
  }
  if (const auto* object = value.AsObject()) {
    HOGNOSE_CHECK(depth < kMaxJsonDepth);
    std::vector<std::string_view> keys;
    for (const auto& [key, v] : *object) {
      HOGNOSE_CHECK(IsUtf8(key));
      keys.push_back(key);
      CheckTree(v, depth + 1);
    }
    std::sort(keys.begin(), keys.end());
    HOGNOSE_CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
  }
}

}  // namespace
}  // namespace hognose::io

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hognose::io;  // NOLINT
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = ParseJson(text, "fuzz");
  if (!value.ok()) {
    HOGNOSE_CHECK(value.status().message().starts_with("fuzz: line "));
    return 0;
  }
  HOGNOSE_CHECK(IsUtf8(text));
  CheckTree(*value, 0);
  for (const int indent : {0, 2}) {
    const std::string printed = ToJson(*value, indent);
    const auto again = ParseJson(printed, "fuzz");
    HOGNOSE_CHECK(again.ok() && Equal(*value, *again));
    HOGNOSE_CHECK(ToJson(*again, indent) == printed);
  }
  return 0;
}
