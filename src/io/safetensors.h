// safetensors: a header of JSON and a body of raw little-endian tensors.
//
//   u64 n | n bytes of JSON | body
//   {"name": {"dtype": .., "shape": [..], "data_offsets": [begin, end]}, "__metadata__": {..}}
//
// Every tensor is checked when the file is opened: known dtype, at most 4 dimensions, shape and
// byte count that agree (without overflow), offsets inside the body; no two tensors overlap and no
// byte belongs to none, as the format demands. A header above 100 MB is refused, as the format's
// own library does. A tensor that isn't aligned to its element size (old writers padded nothing) is
// copied, since views must be aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
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
  static core::Result<SafetensorsFile> Parse(std::span<const uint8_t> bytes,
                                             std::string_view where);

  // The file, or `where` of Parse.
  const std::string& path() const { return file_.path(); }

  // Views into the mapping or a copy; they live as long as this object (also after it is moved).
  const core::TensorMap& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  // Gives back the pages of one of the tensors, as MappedFile does; a copy is left alone.
  void DropPages(const core::TensorView& tensor) const {
    file_.DropPages({static_cast<const uint8_t*>(tensor.data), tensor.bytes()});
  }
  // How many tensors had to be copied.
  size_t copies() const { return copies_.size(); }

 private:
  void AlignTensors();

  MappedFile file_;
  std::vector<std::unique_ptr<uint8_t[]>> copies_;
  core::TensorMap tensors_;
  Metadata metadata_;
};

// Writes a file as io::WriteFile does. Names must be unique UTF-8. Tensors are stored by falling
// element size, else in the order given: so each is aligned to its element size without holes (the
// body begins at a multiple of 64).
core::Status WriteSafetensors(const std::string& path,
                              const std::vector<std::pair<std::string, core::TensorView>>& tensors,
                              const Metadata& metadata);

// The header of such a file alone, for a writer that adds the bodies itself, in the order given.
std::string SafetensorsHeader(const std::vector<std::pair<std::string, core::TensorView>>& tensors,
                              const Metadata& metadata);

}  // namespace hognose::io
