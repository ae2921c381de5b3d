#include "io/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

namespace hognose::io::tokenizer {
namespace {

bool EndsWithWord(std::string_view text) {
  if (text.empty()) return false;
  size_t begin = text.size() - 1;
  while (IsContinuation(text[begin])) --begin;
  return IsWord(DecodeChar(text.data() + begin));
}

bool StartsWithWord(std::string_view text) {
  return !text.empty() && IsWord(DecodeChar(text.data()));
}

}  // namespace

void StringSet::Build(std::vector<std::pair<std::string, size_t>> strings) {
  strings_ = std::move(strings);
  std::sort(strings_.begin(), strings_.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  strings_.erase(std::unique(strings_.begin(), strings_.end(), same), strings_.end());
  int count = 0;
  for (const auto& [string, value] : strings_) {
    const auto byte = static_cast<uint8_t>(string[0]);
    if (!first_bytes_[byte]) ++count;
    first_bytes_[byte] = true;
    only_first_byte_ = byte;
  }
  if (count != 1) only_first_byte_ = -1;
}

std::optional<StringSet::Match> StringSet::Find(std::string_view text, size_t from) const {
  if (strings_.empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (only_first_byte_ >= 0) {
      const void* hit = std::memchr(text.data() + begin, only_first_byte_, text.size() - begin);
      if (hit == nullptr) return std::nullopt;
      begin = static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    }
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    // The strings that agree with the text so far are neighbours in the sorted list.
    auto low = strings_.begin(), high = strings_.end();
    std::optional<Match> best;
    for (size_t depth = 0; low != high; ++depth) {
      if (low->first.size() == depth) {
        best = Match{begin, begin + depth, low->second};
        if (++low == high) break;
      }
      if (begin + depth == text.size()) break;
      const char byte = text[begin + depth];
      const auto less = [depth](const auto& s, uint8_t b) {
        return static_cast<uint8_t>(s.first[depth]) < b;
      };
      const auto greater = [depth](uint8_t b, const auto& s) {
        return b < static_cast<uint8_t>(s.first[depth]);
      };
      low = std::lower_bound(low, high, static_cast<uint8_t>(byte), less);
      high = std::upper_bound(low, high, static_cast<uint8_t>(byte), greater);
    }
    if (best) return best;
  }
  return std::nullopt;
}

core::Result<AddedTokens> AddedTokens::Parse(const Field& array, const Vocabulary& model,
                                             const Normalizer& normalizer) {
  AddedTokens added;
  if (!array.Has()) return added;
  const auto* values = array.value->AsArray();
  if (values == nullptr) return Wrong(array, "an array");
  auto next_id = static_cast<int32_t>(model.count());
  for (size_t i = 0; i < values->size(); ++i) {
    const Field field{&(*values)[i], array.path + "[" + std::to_string(i) + "]"};
    if (field.value->AsObject() == nullptr) return Wrong(field, "an object");
    AddedToken token;
    HOGNOSE_ASSIGN(token.content, ReadString(field, "content"));
    HOGNOSE_ASSIGN(token.single_word, ReadBool(field, "single_word"));
    HOGNOSE_ASSIGN(token.lstrip, ReadBool(field, "lstrip"));
    HOGNOSE_ASSIGN(token.rstrip, ReadBool(field, "rstrip"));
    HOGNOSE_ASSIGN(token.normalized, ReadBool(field, "normalized"));
    HOGNOSE_ASSIGN(token.special, ReadBool(field, "special"));
    HOGNOSE_TRY(ReadInt(field, "id", 0, Vocabulary::kIdLimit - 1).status());
    if (token.content.empty()) continue;
    HOGNOSE_TRY(added.Add(field, std::move(token), model, normalizer, &next_id));
  }
  HOGNOSE_TRY(added.BuildSets(array));
  return added;
}

core::Status AddedTokens::Add(const Field& field, AddedToken token, const Vocabulary& model,
                              const Normalizer& normalizer, int32_t* next_id) {
  if (const auto known = Find(token.content)) {
    token.id = *known;
  } else {
    token.id = model.Find(token.content).value_or(-1);
    if (token.id < 0) token.id = (*next_id)++;
  }
  if (token.id >= Vocabulary::kIdLimit) return Wrong(field, "fewer tokens");
  token.decoded = token.content;
  if (token.normalized) {
    TextStore store;
    Piece piece = Piece::Whole(token.content);
    if (const auto status = normalizer.Apply(&piece, store); !status.ok()) {
      return core::Status::Failed(field.path + ".content: " + status.message());
    }
    token.decoded = piece.text;
  }
  if (token.special) special_.insert(token.content);
  by_content_[token.content] = token.id;
  const auto id = static_cast<size_t>(token.id);
  if (id >= by_id_.size()) by_id_.resize(id + 1, -1);
  if (by_id_[id] < 0) {
    by_id_[id] = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(std::move(token));
  } else {
    tokens_[static_cast<size_t>(by_id_[id])] = std::move(token);
  }
  return {};
}

core::Status AddedTokens::BuildSets(const Field& array) {
  std::vector<std::pair<std::string, size_t>> raw, normalized;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    (token.normalized ? normalized : raw).emplace_back(token.decoded, i);
  }
  for (const auto& [string, value] : normalized) {
    if (!string.empty()) continue;
    return core::Status::Failed(array.path + ": got \"" + tokens_[value].content +
                                "\", which normalizes to nothing, want text");
  }
  raw_.Build(std::move(raw));
  normalized_.Build(std::move(normalized));
  return {};
}

void AddedTokens::Extract(const Piece& piece, bool normalized, Pieces* out) const {
  const StringSet& set = normalized ? normalized_ : raw_;
  const std::string_view text = piece.text;
  size_t done = 0;
  // The search goes on behind the bare match, also behind one that is turned down or that strip
  // makes longer; so does the library's.
  size_t from = 0;
  while (const auto match = set.Find(text, from)) {
    const AddedToken& token = tokens_[match->value];
    size_t begin = match->begin, end = match->end;
    from = end;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = std::max(SpaceAtEnd(text.substr(0, begin)), done);
    if (token.rstrip) end += SpaceAtStart(text.substr(end));
    if (done < begin) out->push_back(piece.Slice(done, begin));
    out->push_back({.id = token.id});
    done = end;
  }
  if (done != text.size()) out->push_back(piece.Slice(done, text.size()));
}

std::optional<int32_t> AddedTokens::Find(std::string_view content) const {
  const auto found = by_content_.find(content);
  if (found == by_content_.end()) return std::nullopt;
  return found->second;
}

bool AddedTokens::IsSpecial(std::string_view text) const { return special_.contains(text); }

}  // namespace hognose::io::tokenizer
