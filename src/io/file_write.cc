#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "core/check.h"
#include "core/rng.h"
#include "io/file.h"

namespace hognose::io {
namespace {

namespace fs = std::filesystem;
using core::Status;

Status CannotWrite(const std::string& path, int error) {
  return Status::Failed(
      fmt::format("{}: could not write: {}", path, std::generic_category().message(error)));
}

// A FileWriter over a descriptor, which it closes.
class DescriptorWriter final : public FileWriter {
 public:
  // `appends`: the place where bytes go isn't ours to choose (a pipe, standard output).
  DescriptorWriter(int fd, bool appends) : fd_(fd), appends_(appends) {}
  DescriptorWriter(const DescriptorWriter&) = delete;
  DescriptorWriter& operator=(const DescriptorWriter&) = delete;
  ~DescriptorWriter() override {
    if (fd_ >= 0) close(fd_);
  }

  void Write(std::span<const uint8_t> bytes) override {
    if (buffer_.size() + bytes.size() > kBuffer) Flush();
    if (bytes.size() > kBuffer) {
      Put(bytes);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
  }

  void WriteAt(size_t offset, std::span<const uint8_t> bytes) override {
    Flush();
    if (error_ != 0) return;
    HOGNOSE_CHECK(offset <= written_ && bytes.size() <= written_ - offset);
    if (appends_) {
      error_ = ESPIPE;
      return;
    }
    while (!bytes.empty()) {
      const ssize_t put = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (!Count(put)) return;
      if (put < 0) continue;
      bytes = bytes.subspan(static_cast<size_t>(put));
      offset += static_cast<size_t>(put);
    }
  }

  bool failed() const override { return error_ != 0; }

  // Brings everything to the disk and closes. Returns the first error number, or 0.
  int Finish(bool sync) {
    Flush();
    if (error_ == 0 && sync) {
      int rc = 0;
      do rc = fsync(fd_);
      while (rc != 0 && errno == EINTR);
      // Some file systems can't sync; that is no failure to write.
      if (rc != 0 && errno != EINVAL && errno != ENOTSUP) error_ = errno;
    }
    if (close(std::exchange(fd_, -1)) != 0 && errno != EINTR && error_ == 0) error_ = errno;
    return error_;
  }

 private:
  static constexpr size_t kBuffer = size_t{1} << 18;

  void Flush() {
    Put(buffer_);
    buffer_.clear();
  }

  void Put(std::span<const uint8_t> bytes) {
    while (error_ == 0 && !bytes.empty()) {
      const ssize_t put = write(fd_, bytes.data(), bytes.size());
      if (!Count(put)) return;
      if (put < 0) continue;
      bytes = bytes.subspan(static_cast<size_t>(put));
      written_ += static_cast<size_t>(put);
    }
  }

  // False if the call failed for good.
  bool Count(ssize_t put) {
    if (put < 0 && errno != EINTR) error_ = errno;
    return error_ == 0;
  }

  int fd_;
  bool appends_;
  int error_ = 0;
  size_t written_ = 0;
  std::vector<uint8_t> buffer_;
};

// Follows symbolic links at the end of the path, also to a file that isn't there yet.
std::string FollowLinks(const std::string& path) {
  fs::path current = path;
  for (int links = 0; links < 40; ++links) {
    std::error_code error;
    const fs::path target = fs::read_symlink(current, error);
    if (error) break;
    current = target.is_absolute() ? target : current.parent_path() / target;
  }
  return current.string();
}

// A descriptor to write `path` directly if that is what it wants, else nothing. Opening the file
// behind standard output again, or replacing it, would lose what else goes there.
std::optional<int> OpenDirectly(const std::string& path, const struct stat& info) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat standard = {};
    if (fstat(fd, &standard) == 0 && standard.st_dev == info.st_dev &&
        standard.st_ino == info.st_ino) {
      return fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
  }
  if (S_ISREG(info.st_mode)) return std::nullopt;
  return open(path.c_str(), O_WRONLY | O_CLOEXEC);
}

// A new file beside `path`, open for writing; -1 and errno if that fails.
int OpenTemporary(const std::string& path, std::string* name) {
  static constexpr int kTries = 100;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  core::Rng rng(static_cast<uint64_t>(now) ^ (static_cast<uint64_t>(getpid()) << 40));
  for (int i = 0; i < kTries; ++i) {
    *name =
        (fs::path(path).parent_path() / fmt::format(".hognose-{:016x}.tmp", rng.Next())).string();
    const int fd = open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

// Makes a rename survive a power cut. Not every file system can; the file itself is complete.
void SyncFolder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const int fd = open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

Status WriteDirectly(const std::string& path, int fd, core::FunctionRef<Status(FileWriter&)> fill) {
  if (fd < 0) return CannotWrite(path, errno);
  DescriptorWriter writer(fd, /*appends=*/true);
  const Status filled = fill(writer);
  const int error = writer.Finish(/*sync=*/false);
  if (error != 0) return CannotWrite(path, error);
  return filled;
}

// Removes the temporary file unless it was renamed.
struct Temporary {
  std::string name;
  ~Temporary() {
    if (!name.empty()) unlink(name.c_str());
  }
};

}  // namespace

Status WriteFile(const std::string& path, core::FunctionRef<Status(FileWriter&)> fill) {
  struct stat old = {};
  const bool exists = stat(path.c_str(), &old) == 0;
  if (exists) {
    if (S_ISDIR(old.st_mode)) {
      return Status::Failed(fmt::format("{}: got a folder, want a file to write", path));
    }
    if (const auto fd = OpenDirectly(path, old)) return WriteDirectly(path, *fd, fill);
    // A rename would replace a file that is write-protected.
    if (faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return CannotWrite(path, errno);
  } else if (errno != ENOENT) {
    return CannotWrite(path, errno);
  }
  const std::string target = FollowLinks(path);
  Temporary temporary;
  std::string name;
  const int fd = OpenTemporary(target, &name);
  if (fd < 0) return CannotWrite(path, errno);
  temporary.name = name;
  DescriptorWriter writer(fd, /*appends=*/false);
  if (exists) {
    // Only root can keep the owner; others write files of their own. The mode comes second because
    // a change of owner clears bits of it.
    [[maybe_unused]] const int kept = fchown(fd, old.st_uid, old.st_gid);
    if (fchmod(fd, old.st_mode & 0777) != 0) return CannotWrite(path, errno);
  }
  const Status filled = fill(writer);
  const int error = writer.Finish(/*sync=*/filled.ok());
  if (error != 0) return CannotWrite(path, error);
  if (!filled.ok()) return filled;
  if (rename(name.c_str(), target.c_str()) != 0) return CannotWrite(path, errno);
  temporary.name.clear();
  SyncFolder(target);
  return Status();
}

Status WriteFileBytes(const std::string& path, std::string_view bytes) {
  return WriteFile(path, [&](FileWriter& writer) {
    writer.Write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    return Status();
  });
}

}  // namespace hognose::io
