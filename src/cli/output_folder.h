// A folder that a command writes: made aside, then put in its place as a whole.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"

namespace hognose::cli {

class OutputFolder {
 public:
  // Makes the temporary folder beside `path`. An existing folder is refused without `force`; with
  // it, only an empty one or a model's (it has config.json) is replaced, so that a wrong name never
  // costs anything else. A folder that is or holds one of `sources`, what the command reads, is
  // refused too; an empty name is none.
  static core::Result<OutputFolder> Create(const std::string& path,
                                           const std::vector<std::string>& sources, bool force);
  OutputFolder(OutputFolder&& other) noexcept
      : given_(std::move(other.given_)),
        final_(std::move(other.final_)),
        made_(std::exchange(other.made_, {})) {}
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();  // without Commit everything is as it was before

  // The folder to fill.
  std::string path() const { return made_.string(); }
  std::string operator/(const char* name) const { return (made_ / name).string(); }

  // Nothing else may be done afterwards.
  core::Status Commit();

  // A message about a file in here, with the name that the user gave.
  core::Status Named(const core::Status& status) const;

 private:
  OutputFolder() = default;

  std::string given_;
  std::filesystem::path final_;
  std::filesystem::path made_;  // empty when nothing is left to remove
};

}  // namespace hognose::cli
