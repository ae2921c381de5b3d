// Files: memory-mapped reading, whole-file reading, and writing that never loses the old file.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "core/status.h"

namespace hognose::io {

// A read-only mapping of a regular file. Move-only; unmapped at the end.
class MappedFile {
 public:
  // Errors name the path and the system's reason. An empty file maps to an empty span.
  static core::Result<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Gives back the memory of whole pages inside a part of bytes(); a later read fetches them from
  // the file again. Memory that is no part of them is left alone.
  void DropPages(std::span<const uint8_t> part) const;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// All bytes of a file or a pipe; fails above `limit` bytes.
core::Result<std::string> ReadFile(const std::string& path, size_t limit = size_t{1} << 32);

// Receives the bytes of a file that is being written. A failed write is remembered and returned at
// the end; later calls do nothing.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual void Write(std::span<const uint8_t> bytes) = 0;
  // Overwrites bytes already written, at `offset` from the start (headers known only at the end).
  // Fails on a pipe or a terminal.
  virtual void WriteAt(size_t offset, std::span<const uint8_t> bytes) = 0;
  // For long work: true once a write has failed, so that it may stop.
  virtual bool failed() const = 0;
};

// Writes aside in the same folder, syncs and renames, so that `path` holds the old bytes or all of
// the new ones. After a failure (of `fill` too) no temporary file is left and `path` is as before.
// A symbolic link is followed; an existing file keeps its mode. What is no regular file (/dev/null,
// a pipe) and the file behind standard output or error is written directly.
core::Status WriteFile(const std::string& path, core::FunctionRef<core::Status(FileWriter&)> fill);
core::Status WriteFileBytes(const std::string& path, std::string_view bytes);
// A template, since text also converts to FunctionRef, whose constructor takes anything.
template <std::convertible_to<std::string_view> Bytes>
core::Status WriteFile(const std::string& path, const Bytes& bytes) {
  return WriteFileBytes(path, bytes);
}

}  // namespace hognose::io
