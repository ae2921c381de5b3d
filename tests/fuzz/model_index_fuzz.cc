// Shard names that come through are plain file names, and JSON holds them.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "io/json.h"
#include "io/model_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hognose::io;  // NOLINT
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto map = ParseWeightMap(text, "fuzz");
  if (!map.ok()) {
    HOGNOSE_CHECK(map.status().message().starts_with("fuzz: "));
    return 0;
  }
  HOGNOSE_CHECK(!map->empty());
  const auto root = ParseJson(text, "fuzz");
  HOGNOSE_CHECK(root.ok());
  const auto* object = root->Find("weight_map");
  HOGNOSE_CHECK(object->AsObject()->size() == map->size());
  for (const auto& [tensor, shard] : *map) {
    HOGNOSE_CHECK(!shard.empty() && shard != "." && shard != "..");
    for (const char c : shard) HOGNOSE_CHECK(c != '/' && c != '\\' && c != '\0');
    HOGNOSE_CHECK(*object->Find(tensor)->AsString() == shard);
  }
  return 0;
}
