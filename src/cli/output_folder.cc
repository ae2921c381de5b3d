#include "cli/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace hognose::cli {
namespace {

namespace fs = std::filesystem;

core::Status CannotWrite(const std::string& path, const std::error_code& error) {
  return core::Status::Failed(fmt::format("{}: could not write: {}", path, error.message()));
}

// True if `inner` is `outer` or lies in it; links are followed.
bool Holds(const fs::path& outer, const std::string& inner) {
  std::error_code error;
  const fs::path path = fs::canonical(inner, error);
  if (error) return false;
  return std::mismatch(outer.begin(), outer.end(), path.begin(), path.end()).first == outer.end();
}

// May the existing `folder` be replaced?
core::Status CheckReplaceable(const std::string& given, const fs::path& folder, bool force) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return core::Status::Failed(fmt::format("{}: got a file, want a folder to write", given));
  }
  if (!force) {
    return core::Status::Failed(
        fmt::format("{}: got an existing folder, want a new one (or --force)", given));
  }
  const bool model = fs::exists(folder / "config.json", error) ||
                     fs::exists(folder / "adapter_config.json", error);
  if (!model && !fs::is_empty(folder, error)) {
    return core::Status::Failed(fmt::format(
        "{}: got a folder without config.json, want a model's for --force to replace", given));
  }
  if (faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) != 0) {
    return CannotWrite(given, {errno, std::generic_category()});
  }
  return {};
}

// A new folder beside `folder`.
core::Result<fs::path> MakeTemporary(const std::string& given, const fs::path& folder) {
  constexpr int kTries = 100;  // a killed process with our number may have left some
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    fs::path made = fmt::format("{}.part-{}-{}", folder.string(), getpid(), i);
    if (fs::create_directory(made, error)) return made;
    if (error) return CannotWrite(given, error);
  }
  return CannotWrite(given, std::make_error_code(std::errc::file_exists));
}

// Makes the renaming survive a power cut where the file system can.
void SyncFolder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

// Puts `made` in the place of `old`, which is then at `made`. There is no moment without either,
// except on file systems that can't swap.
std::error_code Swap(const fs::path& made, const fs::path& old) {
  const auto rename_errno = [] { return std::error_code(errno, std::generic_category()); };
  if (renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) == 0) return {};
  if (errno != EINVAL && errno != ENOSYS) return rename_errno();
  const std::string aside = made.string() + ".old";
  if (rename(old.c_str(), aside.c_str()) != 0) return rename_errno();
  if (rename(made.c_str(), old.c_str()) != 0) {
    const std::error_code error = rename_errno();
    (void)rename(aside.c_str(), old.c_str());
    return error;
  }
  if (rename(aside.c_str(), made.c_str()) != 0) return rename_errno();
  return {};
}

}  // namespace

core::Result<OutputFolder> OutputFolder::Create(const std::string& path,
                                                const std::vector<std::string>& sources,
                                                bool force) {
  OutputFolder folder;
  folder.given_ = path;
  std::error_code error;
  folder.final_ = fs::weakly_canonical(path, error);
  if (error) return CannotWrite(path, error);
  if (!folder.final_.has_filename()) folder.final_ = folder.final_.parent_path();  // "out/"
  const bool exists = fs::exists(folder.final_, error);
  if (error) return CannotWrite(path, error);
  for (const std::string& source : sources) {
    if (!exists || source.empty() || !Holds(folder.final_, source)) continue;
    return core::Status::Failed(fmt::format("{}: holds {}, want another folder", path, source));
  }
  if (exists) HOGNOSE_TRY(CheckReplaceable(path, folder.final_, force));
  HOGNOSE_ASSIGN(folder.made_, MakeTemporary(path, folder.final_));
  return folder;
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!made_.empty()) fs::remove_all(made_, ignored);
}

core::Status OutputFolder::Commit() {
  std::error_code error;
  const fs::file_status old = fs::status(final_, error);
  const bool replaces = fs::exists(old);
  error.clear();
  if (replaces) {
    fs::permissions(made_, old.permissions(), error);
    if (!error) error = Swap(made_, final_);
  } else {
    fs::rename(made_, final_, error);
    if (!error) made_.clear();
  }
  if (error) return CannotWrite(given_, error);
  SyncFolder(final_.parent_path());
  return {};
}

core::Status OutputFolder::Named(const core::Status& status) const {
  if (status.ok() || !status.message().starts_with(made_.string())) return status;
  return core::Status::Failed(given_ + status.message().substr(made_.string().size()));
}

}  // namespace hognose::cli
