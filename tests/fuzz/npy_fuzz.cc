// The view lies inside the input, to its end, or is a whole copy; it is aligned.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/check.h"
#include "io/npy.h"

namespace {

void Check(const uint8_t* data, size_t size) {
  const auto array = hognose::io::ParseNpy({data, size}, "fuzz");
  if (!array.ok()) {
    HOGNOSE_CHECK(array.status().message().starts_with("fuzz: "));
    return;
  }
  const auto& tensor = array->tensor;
  const size_t bytes = tensor.bytes();
  HOGNOSE_CHECK(tensor.rank <= 4 && bytes < size);
  const auto* view = static_cast<const uint8_t*>(tensor.data);
  HOGNOSE_CHECK(reinterpret_cast<uintptr_t>(view) % hognose::core::Bytes(tensor.dtype) == 0);
  if (array->copy == nullptr) HOGNOSE_CHECK(view + bytes == data + size);
  if (bytes > 0) HOGNOSE_CHECK(std::memcmp(view, data + size - bytes, bytes) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Check(data, size);
  // Once more with a header length that is right, since a mutation of the header seldom keeps it.
  constexpr size_t kStart = 10;
  std::string text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.rfind('}');
  if (end == std::string::npos || end < kStart) return 0;
  std::memcpy(text.data(), "\x93NUMPY\1\0", 8);
  const size_t length = end + 1 - kStart;
  text[8] = static_cast<char>(length & 0xFF);
  text[9] = static_cast<char>(length >> 8);
  Check(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  return 0;
}
