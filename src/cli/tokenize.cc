// hognose tokenize: text on standard input to token ids, or back.
#include <fmt/format.h>

#include <filesystem>

#include "cli/command.h"
#include "cli/ids.h"
#include "io/file.h"

namespace hognose::cli {
namespace {

struct TokenizeOptions {
  std::string path;
  bool decode = false;
  bool no_special = false;
};

core::Result<int> Tokenize(const TokenizeOptions& o) {
  HOGNOSE_ASSIGN(std::string path, ModelPath(o.path));
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path += "/tokenizer.json";
  HOGNOSE_ASSIGN(const auto tokenizer, io::Tokenizer::Load(path));
  HOGNOSE_ASSIGN(const std::string input, io::ReadFile("/dev/stdin"));
  const std::string where = "standard input";
  if (o.decode) {
    HOGNOSE_ASSIGN(const auto ids, ParseIds(input, where));
    auto text = tokenizer.Decode(ids, /*skip_special=*/o.no_special);
    if (!text.ok()) return core::Status::Failed(where + ": " + text.status().message());
    Print(*text);
    return kExitDone;
  }
  auto ids = tokenizer.Encode(input, !o.no_special);
  if (!ids.ok()) return core::Status::Failed(where + ": " + ids.status().message());
  std::string line;
  for (const int32_t id : *ids) line += fmt::format("{}{}", line.empty() ? "" : " ", id);
  Print(line + "\n");
  return kExitDone;
}

}  // namespace

Runner AddTokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  app.add_option("MODEL", o->path, "Model folder or tokenizer.json (default: the bundled model)");
  app.add_flag("--decode", o->decode, "Ids to text");
  app.add_flag("--no-special", o->no_special,
               "Add no special tokens; with --decode, print none");
  return [o] { return Tokenize(*o); };
}

}  // namespace hognose::cli
