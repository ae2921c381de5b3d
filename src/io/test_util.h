// What the tests of this folder share: folders that vanish and looks at error messages.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "core/status.h"

namespace hognose::io {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "hognose-io-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string Put(std::string_view name, std::string_view bytes) const {
    std::ofstream(*this / name, std::ios::binary) << bytes;
    return *this / name;
  }
  size_t CountFiles() const {
    const std::filesystem::directory_iterator files(path_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

 private:
  std::string path_;
};

inline std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Passes if the status is kFailed and its message holds every one of the words.
inline ::testing::AssertionResult FailsWith(const core::Status& status,
                                            std::initializer_list<std::string_view> words) {
  if (status.code() != core::StatusCode::kFailed) {
    return ::testing::AssertionFailure() << "no failure: " << status.message();
  }
  for (const auto word : words) {
    if (status.message().find(word) == std::string::npos) {
      return ::testing::AssertionFailure()
             << "\"" << status.message() << "\" doesn't hold \"" << word << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace hognose::io
