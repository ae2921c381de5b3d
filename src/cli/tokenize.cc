// hognose tokenize: text on standard input to token ids, or back.
#include <fmt/format.h>

#include <filesystem>

#include "cli/command.h"
#include "cli/options.h"
#include "io/ids.h"
#include "io/tokenizer/tokenizer.h"

namespace hognose::cli {
namespace {

struct TokenizeOptions {
  std::string path;
  bool decode = false;
  bool no_special = false;
  bool json = false;
};

constexpr const char* kInput = "standard input";

core::Status FromInput(const core::Status& status) {
  return core::Status::Failed(fmt::format("{}: {}", kInput, status.message()));
}

core::Result<int> Decode(const TokenizeOptions& o, const io::Tokenizer& tokenizer,
                         const std::string& input) {
  HOGNOSE_ASSIGN(const auto ids, io::ParseIds(input, kInput));
  auto text = tokenizer.Decode(ids, /*skip_special=*/o.no_special);
  if (!text.ok()) return FromInput(text.status());
  if (o.json) {
    PrintJson(core::Value::Object{{"text", *text}});
  } else {
    Print(*text);
  }
  return kExitDone;
}

core::Result<int> Encode(const TokenizeOptions& o, const io::Tokenizer& tokenizer,
                         const std::string& input) {
  const auto ids = tokenizer.Encode(input, /*special=*/!o.no_special);
  if (!ids.ok()) return FromInput(ids.status());
  if (o.json) {
    PrintJson(core::Value::Object{{"ids", core::Value::Array(ids->begin(), ids->end())}});
  } else {
    Print(fmt::format("{}\n", fmt::join(*ids, " ")));
  }
  return kExitDone;
}

core::Result<int> Tokenize(const TokenizeOptions& o) {
  HOGNOSE_ASSIGN(std::string path, ModelPath(o.path));
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) path += "/tokenizer.json";
  HOGNOSE_ASSIGN(const auto tokenizer, io::Tokenizer::Load(path));
  HOGNOSE_ASSIGN(const std::string input, ReadStandardInput());
  return o.decode ? Decode(o, tokenizer, input) : Encode(o, tokenizer, input);
}

}  // namespace

Runner AddTokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  AddPath(app, "MODEL", &o->path, "Model folder or tokenizer.json (default: the bundled model)");
  AddFlag(app, "--decode", &o->decode, "Ids to text");
  AddFlag(app, "--no-special", &o->no_special, "Add no special tokens; with --decode, print none");
  AddFlag(app, "--json", &o->json, "Print {\"ids\": [...]}, with --decode {\"text\": ...}");
  return [o] { return Tokenize(*o); };
}

}  // namespace hognose::cli
