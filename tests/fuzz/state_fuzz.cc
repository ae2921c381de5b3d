// State files: whatever the bytes are, a Status or a state that a session can go on from.
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/check.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "runtime/state_file.h"
#include "tests/support/tiny_checkpoint.h"

namespace {

namespace io = hognose::io;
namespace runtime = hognose::runtime;

// The model whose states the corpus holds.
runtime::Session MakeSession() {
  const auto tiny = hognose::testing::MakeTiny(hognose::testing::TinyKind::kMamba2);
  std::string folder = (std::filesystem::temp_directory_path() / "hognose-fuzz-XXXXXX").string();
  HOGNOSE_CHECK(mkdtemp(folder.data()) != nullptr);
  const auto views = tiny.views();
  HOGNOSE_CHECK(io::WriteFile(folder + "/config.json", io::ToJson(tiny.config)).ok());
  HOGNOSE_CHECK(
      io::WriteSafetensors(folder + "/model.safetensors", {views.begin(), views.end()}, {}).ok());
  auto model = runtime::Model::Load(folder, {.threads = 1});
  std::filesystem::remove_all(folder);  // the mapping stays
  HOGNOSE_CHECK(model.ok());
  auto session = runtime::Session::Create(*model, {.piece = 4});
  HOGNOSE_CHECK(session.ok());
  return std::move(*session);
}

void Check(std::string_view text) {
  static runtime::Session session = MakeSession();
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  const auto summary = runtime::ParseState(bytes, "fuzz");
  auto saved = runtime::ReadState(bytes, "fuzz", session);
  if (!summary.ok()) HOGNOSE_CHECK(summary.status().message().starts_with("fuzz: "));
  if (!saved.ok()) {
    HOGNOSE_CHECK(saved.status().message().starts_with("fuzz: "));
    return;
  }
  HOGNOSE_CHECK(summary.ok() && summary->position == saved->session.position);
  session.Restore(saved->session);
  HOGNOSE_CHECK(session.Step(1).ok());
  session.Reset();
}

// `digits` behind the first `key`, if there is room for them.
bool Patch(std::string_view key, std::string_view digits, std::string* text) {
  const size_t at = text->find(key);
  if (at == std::string::npos || text->size() - at - key.size() < digits.size()) return false;
  text->replace(at + key.size(), digits.size(), digits);
  return true;
}

// A right header length and checksum, since no mutation keeps them.
bool Seal(std::string* text) {
  const std::string_view checksum = "\"checksum\":\"";
  // The body follows the last brace and the spaces that pad the header.
  const size_t brace = text->find("}}");
  if (brace == std::string::npos || brace < 8) return false;
  size_t end = brace + 2;
  while (end < text->size() && (*text)[end] == ' ') ++end;
  const uint64_t length = end - 8;
  std::memcpy(text->data(), &length, 8);
  if (!Patch(checksum, std::string(32, '0'), text)) return false;
  io::Hasher hasher;
  hasher.Add(*text);
  return Patch(checksum, hasher.Hex(), text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  Check(text);
  if (Seal(&text)) Check(text);
  return 0;
}
