#include "io/tokenizer/model_text.h"

#include <cstdint>
#include <utility>

#include "io/tokenizer/json_scanner.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

// {"a": 0, "b": 1}
bool ReadVocabulary(JsonScanner& text, Vocabulary* vocabulary) {
  if (!text.Take('{')) return false;
  for (bool more = true; more;) {
    std::string_view token;
    int64_t id = 0;
    if (!text.TakeString(&token) || !text.Take(':') || !text.TakeNumber(&id)) return false;
    // With all tokens beginning with a character, all are UTF-8 if their concatenation is.
    if (!token.empty() && IsContinuation(token[0])) return false;
    if (id >= Vocabulary::kIdLimit || !vocabulary->Add(token, static_cast<int32_t>(id))) {
      return false;
    }
    if (!text.TakeNext('}', &more)) return false;
  }
  return FindInvalidUtf8(vocabulary->text()) == std::string_view::npos && vocabulary->Index();
}

// "a b"
bool ReadLine(JsonScanner& text, MergeList& list) {
  std::string_view line;
  if (!text.TakeString(&line) || line.starts_with("#version")) return false;
  const size_t space = line.find(' ');
  if (space == 0 || space >= line.size() - 1) return false;
  const std::string_view right = line.substr(space + 1);
  return right.find(' ') == std::string_view::npos && list.Add(line.substr(0, space), right);
}

// ["a", "b"]
bool ReadPair(JsonScanner& text, MergeList& list, std::string* buffer) {
  std::string_view left, right;
  if (!text.Take('[') || !text.TakeString(&left)) return false;
  buffer->assign(left);  // the next string may overwrite it
  if (!text.Take(',') || !text.TakeString(&right) || !text.Take(']')) return false;
  return !buffer->empty() && !right.empty() && list.Add(*buffer, right);
}

// Tokens are UTF-8, so that merges of tokens are too.
bool ReadMerges(JsonScanner& text, const Vocabulary& vocabulary, MergeTable* merges) {
  if (!text.Take('[')) return false;
  MergeList list(vocabulary, "", merges);
  std::string buffer;
  for (bool more = true; more;) {
    const bool read = text.Peek() == '"' ? ReadLine(text, list) : ReadPair(text, list, &buffer);
    if (!read || !text.TakeNext(']', &more)) return false;
  }
  merges->Index();
  return true;
}

// Goes to the value of the member `key` of the object that stands here or whose members go on here.
bool GoTo(std::string_view key, char before, JsonScanner& text) {
  if (!text.Take(before)) return false;
  for (;;) {
    std::string_view name;
    if (!text.TakeString(&name)) return false;
    const bool found = name == key;
    if (!text.Take(':')) return false;
    if (found) return true;
    if (!text.SkipValue() || !text.Take(',')) return false;
  }
}

}  // namespace

std::optional<ModelText> ReadModelText(std::string_view json) {
  JsonScanner text(json);
  std::optional<ModelText> result(std::in_place);
  ModelTables& tables = result->tables;
  if (!GoTo("model", '{', text) || !GoTo("vocab", '{', text)) return std::nullopt;
  const size_t vocabulary_begin = text.offset();
  // Generous: memory that stays untouched costs nothing.
  tables.vocabulary.Reserve(json.size() / 24, json.size() / 4);
  if (!ReadVocabulary(text, &tables.vocabulary)) return std::nullopt;
  const size_t vocabulary_end = text.offset();
  if (!GoTo("merges", ',', text)) return std::nullopt;
  const size_t merges_begin = text.offset();
  tables.merges.Reserve(tables.vocabulary.count());
  if (!ReadMerges(text, tables.vocabulary, &tables.merges)) return std::nullopt;
  result->rest.append(json.substr(0, vocabulary_begin)).append("{}");
  result->rest.append(json.substr(vocabulary_end, merges_begin - vocabulary_end)).append("[]");
  result->rest.append(json.substr(text.offset()));
  return result;
}

}  // namespace hognose::io::tokenizer
