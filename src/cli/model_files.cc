#include "cli/model_files.h"

#include <filesystem>

#include "io/file.h"

namespace hognose::cli {

namespace fs = std::filesystem;

core::Result<std::vector<std::pair<std::string, std::string>>> ReadModelFiles(
    const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json"}) {
    const std::string path = (fs::path(folder) / name).string();
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    HOGNOSE_ASSIGN(std::string bytes, io::ReadFile(path));
    files.emplace_back(name, std::move(bytes));
  }
  return files;
}

core::Status CopyModelFiles(const std::string& from, const OutputFolder& to) {
  HOGNOSE_ASSIGN(const auto files, ReadModelFiles(from));
  for (const auto& [name, bytes] : files) HOGNOSE_TRY(io::WriteFile(to / name.c_str(), bytes));
  return {};
}

}  // namespace hognose::cli
