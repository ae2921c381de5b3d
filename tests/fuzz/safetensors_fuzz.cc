// Every view lies inside the input (or is a copy), is aligned, and the views fill the body exactly.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "io/safetensors.h"

namespace {

void Check(const uint8_t* data, size_t size) {
  const auto parsed = hognose::io::SafetensorsFile::Parse({data, size}, "fuzz");
  if (!parsed.ok()) {
    HOGNOSE_CHECK(parsed.status().message().starts_with("fuzz: "));
    return;
  }
  uint64_t header = 0;
  HOGNOSE_CHECK(size >= 8);
  std::memcpy(&header, data, 8);
  const uint8_t* body = data + 8 + header;
  size_t copies = 0, total = 0;
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const auto& [name, tensor] : parsed->tensors()) {
    HOGNOSE_CHECK(tensor.rank <= 4);
    const auto* view = static_cast<const uint8_t*>(tensor.data);
    HOGNOSE_CHECK(reinterpret_cast<uintptr_t>(view) % hognose::core::Bytes(tensor.dtype) == 0);
    const size_t bytes = tensor.bytes();
    total += bytes;
    if (view >= body && view + bytes <= data + size) {
      ranges.emplace_back(view - body, bytes);
    } else {
      ++copies;
      uint8_t sum = 0;  // every byte can be read
      for (size_t i = 0; i < bytes; ++i) sum = static_cast<uint8_t>(sum + view[i]);
      [[maybe_unused]] const volatile uint8_t keep = sum;
    }
  }
  HOGNOSE_CHECK(copies == parsed->copies());
  HOGNOSE_CHECK(total == static_cast<size_t>(data + size - body));
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    HOGNOSE_CHECK(ranges[i - 1].first + ranges[i - 1].second <= ranges[i].first);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Check(data, size);
  // Once more with a header length that is right, since a mutation of the header seldom keeps it.
  std::string text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.rfind('}');
  if (end == std::string::npos || end < 8) return 0;
  const uint64_t length = end + 1 - 8;
  std::memcpy(text.data(), &length, 8);
  Check(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  return 0;
}
