// safetensors: a header of JSON and a body of raw little-endian tensors.
//
//   u64 n | n bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {..}} | body
//
// Every tensor is checked when the file is opened: known dtype, at most 4 dimensions, shape and byte
// count that agree (without overflow), offsets inside the body, no two tensors that overlap, natural
// alignment. A header above 100 MB is refused, as the format's own library does.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "io/file.h"

namespace hognose::io {

using Metadata = std::map<std::string, std::string, std::less<>>;

class SafetensorsFile {
 public:
  static core::Result<SafetensorsFile> Open(const std::string& path);
  // The same over bytes in memory (tests, fuzzing); `bytes` must outlive the result.
  static core::Result<SafetensorsFile> Parse(std::span<const uint8_t> bytes, std::string_view where);

  // Views into the mapping; they live as long as this object (also after it is moved).
  const core::TensorMap& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  core::TensorMap tensors_;
  Metadata metadata_;
};

// Writes a file as io::WriteFile does. Tensors are stored in the order given, each aligned to its
// element size; names must be unique.
core::Status WriteSafetensors(const std::string& path,
                              const std::vector<std::pair<std::string, core::TensorView>>& tensors,
                              const Metadata& metadata);

}  // namespace hognose::io
