// Input: a tokenizer.json, a NUL byte, a text. What loads and encodes gives ids that exist, and
// they decode to the same text at once and streamed, with the stream's state saved on the way.
// Tables that are read from the text are those of the tree.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "io/json.h"
#include "io/tokenizer/model_text.h"
#include "io/tokenizer/tokenizer.h"

namespace hognose::io {
namespace {

void CheckDecoding(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  const auto text = tokenizer.Decode(ids, skip);
  Tokenizer::Stream stream(tokenizer, skip);
  std::string streamed;
  bool ok = true;
  for (size_t i = 0; i < ids.size() && ok; ++i) {
    const auto piece = stream.Push(ids[i]);
    ok = piece.ok();
    if (ok) HOGNOSE_CHECK(IsUtf8(*piece));
    if (ok) streamed += *piece;
    if (i % 2 == 0) {
      Tokenizer::Stream other(tokenizer, skip);
      HOGNOSE_CHECK(other.Restore(stream.Save()).ok());
      stream = std::move(other);
    }
  }
  if (ok) {
    const auto rest = stream.Finish();
    ok = rest.ok();
    if (ok) streamed += *rest;
  }
  HOGNOSE_CHECK(ok == text.ok());
  HOGNOSE_CHECK(!ok || streamed == *text);
}

void CheckTokenizer(const Tokenizer& tokenizer, std::string_view text) {
  Tokenizer::Stream stream(tokenizer, false);
  if (stream.Restore(text).ok()) HOGNOSE_CHECK(stream.Save() == text);
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.Encode(text, special);
    HOGNOSE_CHECK(!ids.ok() || IsUtf8(text));
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) HOGNOSE_CHECK(tokenizer.Has(id));
    CheckDecoding(tokenizer, *ids, special);
  }
  std::vector<int32_t> all;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto id = static_cast<int32_t>(static_cast<uint8_t>(text[i]) % 32);
    if (tokenizer.Has(id)) all.push_back(id);
  }
  CheckDecoding(tokenizer, all, false);
}

void CheckMerges(const tokenizer::ModelTables& tables, const core::Value::Array& merges) {
  tokenizer::MergeTable want;
  tokenizer::MergeList list(tables.vocabulary, "", &want);
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (const core::Value& merge : merges) {
    std::string left, right;
    if (const auto* line = merge.AsString()) {
      left = line->substr(0, line->find(' '));
      right = line->substr(line->find(' ') + 1);
    } else {
      left = *merge.AsArray()->at(0).AsString();
      right = *merge.AsArray()->at(1).AsString();
    }
    HOGNOSE_CHECK(!left.empty() && !right.empty() && list.Add(left, right));
    pairs.emplace_back(*tables.vocabulary.Find(left), *tables.vocabulary.Find(right));
  }
  want.Index();
  for (const auto& [left, right] : pairs) {
    HOGNOSE_CHECK(tables.merges.Find(left, right).rank == want.Find(left, right).rank);
    HOGNOSE_CHECK(tables.merges.Find(left, right).id == want.Find(left, right).id);
  }
}

void CheckTables(std::string_view json) {
  const auto text = tokenizer::ReadModelText(json);
  if (!text) return;
  const auto tree = ParseJson(json, "fuzz");
  HOGNOSE_CHECK(tree.ok() == ParseJson(text->rest, "fuzz").ok());
  if (!tree.ok()) return;
  const core::Value& model = *tree->Find("model");
  const auto& vocab = *model.Find("vocab")->AsObject();
  HOGNOSE_CHECK(vocab.size() == text->tables.vocabulary.count());
  for (const auto& [token, id] : vocab) {
    HOGNOSE_CHECK(text->tables.vocabulary.Find(token) == *id.AsInt());
  }
  CheckMerges(text->tables, *model.Find("merges")->AsArray());
}

}  // namespace
}  // namespace hognose::io

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hognose::io;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t separator = input.find('\0');
  const std::string_view json = input.substr(0, separator);
  CheckTables(json);
  const auto tokenizer = Tokenizer::Parse(json, "fuzz");
  if (!tokenizer.ok()) {
    HOGNOSE_CHECK(tokenizer.status().message().starts_with("fuzz: "));
    return 0;
  }
  CheckTokenizer(*tokenizer, separator == input.npos ? "" : input.substr(separator + 1));
  return 0;
}
