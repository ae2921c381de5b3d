#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>

namespace hognose::io {

using core::Result;
using core::Status;

namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

Status CannotOpen(const std::string& path, int error) {
  return Status::Failed(fmt::format("{}: could not open: {}", path, Reason(error)));
}

struct Descriptor {
  int fd;
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return CannotOpen(path, errno);
  struct stat info = {};
  if (fstat(file.fd, &info) != 0) return CannotOpen(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Status::Failed(fmt::format("{}: got {}, want a regular file", path,
                                      S_ISDIR(info.st_mode) ? "a folder" : "a special file"));
  }
  MappedFile result;
  result.path_ = path;
  if (info.st_size == 0) return result;
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    return Status::Failed(fmt::format("{}: could not map {} bytes: {}", path, size, Reason(errno)));
  }
  result.data_ = static_cast<const uint8_t*>(data);
  result.size_ = size;
  return result;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::DropPages(std::span<const uint8_t> part) const {
  const std::less_equal<> before;
  if (!before(data_, part.data()) || !before(part.data() + part.size(), data_ + size_)) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + part.size()) / page * page;
  // A refusal costs memory only.
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return CannotOpen(path, errno);
  const auto too_large = [&] {
    return Status::Failed(
        fmt::format("{}: got more than {} bytes, want at most that", path, limit));
  };
  constexpr size_t kChunk = size_t{1} << 16;
  std::string bytes;
  size_t size = 0;
  struct stat info = {};
  if (fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode)) {
    const auto known = static_cast<size_t>(info.st_size);
    if (known > limit) return too_large();
    bytes.resize(known + 1);  // one more, so that the end is seen without growing
  }
  for (;;) {
    if (size == bytes.size()) bytes.resize(std::max(2 * size, kChunk));
    const ssize_t got = read(file.fd, bytes.data() + size, bytes.size() - size);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Status::Failed(fmt::format("{}: could not read: {}", path, Reason(errno)));
    }
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (size > limit) return too_large();
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace hognose::io
