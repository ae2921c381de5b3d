#include "io/tokenizer/bpe.h"

#include <algorithm>
#include <utility>

#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

// Up to here looking at every pair again after each merge is faster than a heap.
constexpr size_t kShortWord = 48;

}  // namespace

core::Status Bpe::Encode(std::string_view word, bool byte_level, Scratch& scratch,
                         std::vector<int32_t>* ids) const {
  if (byte_level && (ignore_merges_ || !all_byte_level_ids_)) {
    scratch.text.clear();
    AppendByteLevel(word, &scratch.text);
    word = scratch.text;
    byte_level = false;
  }
  if (ignore_merges_) {
    if (const auto id = vocabulary_.Find(word)) {
      ids->push_back(*id);
      return {};
    }
  }
  scratch.ids.clear();
  if (byte_level) {
    for (const char byte : word) {
      scratch.ids.push_back(byte_level_ids_[static_cast<uint8_t>(byte)]);
    }
  } else {
    HOGNOSE_TRY(Split(word, scratch));
  }
  if (scratch.ids.size() <= kShortWord) {
    MergeShort(scratch);
  } else {
    MergeLong(scratch);
  }
  ids->insert(ids->end(), scratch.ids.begin(), scratch.ids.end());
  return {};
}

// The ids of the characters of `word`, before any merge.
core::Status Bpe::Split(std::string_view word, Scratch& scratch) const {
  int32_t unk = -1;  // seen, not yet written: the next one may be fused with it
  const auto flush = [&] {
    if (unk >= 0) scratch.ids.push_back(unk);
    unk = -1;
  };
  std::string dressed;
  for (size_t i = 0; i < word.size();) {
    const size_t length = CharLength(word[i]);
    std::string_view text = word.substr(i, length);
    const bool first = i == 0;
    const bool last = i + length == word.size();
    i += length;
    if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
      dressed = (first ? "" : prefix_) + std::string(text) + (last ? suffix_ : "");
      text = dressed;
    }
    if (const auto id = vocabulary_.Find(text)) {
      flush();
      scratch.ids.push_back(*id);
      continue;
    }
    // An unk that waits is written after these bytes, not before them; the library does so.
    if (byte_fallback_ && AppendBytes(text, &scratch.ids)) continue;
    if (!has_unk_ || (unk >= 0 && fuse_unk_)) continue;
    flush();
    unk = vocabulary_.Find(unk_token_).value_or(-1);
    if (unk < 0) {
      return core::Status::Failed(unk_path_ + ": got \"" + unk_token_ +
                                  "\", want a token of the vocabulary");
    }
  }
  flush();
  return {};
}

// The bytes of `text` as tokens "<0xE2>"; false, and nothing, if one of them has none.
bool Bpe::AppendBytes(std::string_view text, std::vector<int32_t>* ids) const {
  const size_t before = ids->size();
  for (const char byte : text) {
    const int32_t id = fallback_ids_[static_cast<uint8_t>(byte)];
    if (id < 0) {
      ids->resize(before);
      return false;
    }
    ids->push_back(id);
  }
  return true;
}

void Bpe::MergeShort(Scratch& scratch) const {
  auto& ids = scratch.ids;
  auto& merges = scratch.merges;  // merges[i] is that of ids[i] and ids[i + 1]
  size_t n = ids.size();
  if (n < 2) return;
  merges.resize(n - 1);
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = merges_.Find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) break;
    ids[best] = merges[best].id;
    --n;
    for (size_t i = best + 1; i < n; ++i) {
      ids[i] = ids[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best > 0) merges[best - 1] = merges_.Find(ids[best - 1], ids[best]);
    if (best + 1 < n) merges[best] = merges_.Find(ids[best], ids[best + 1]);
  }
  ids.resize(n);
}

// Adds the merge of the symbol at `left` and its right neighbour to the heap, if there is one.
void Bpe::PushCandidate(Scratch& scratch, int32_t left) const {
  const auto& symbol = scratch.symbols[left];
  if (symbol.next < 0) return;
  const auto merge = merges_.Find(symbol.id, scratch.symbols[symbol.next].id);
  if (merge.rank == MergeTable::kNoRank) return;
  scratch.heap.push_back({merge.rank, left, merge.id});
}

void Bpe::MergeLong(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto n = static_cast<int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < n; ++i) {
    symbols.push_back({scratch.ids[i], i - 1, i + 1 < n ? i + 1 : -1});
  }
  for (int32_t i = 0; i < n; ++i) PushCandidate(scratch, i);
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    PushCandidate(scratch, left);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    const Scratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    auto& left = symbols[top.position];
    if (left.id < 0 || left.next < 0) continue;
    auto& right = symbols[left.next];
    if (merges_.Find(left.id, right.id).id != top.id) continue;  // one of them has changed since
    left.id = top.id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    if (left.previous >= 0) push(left.previous);
    push(top.position);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) scratch.ids.push_back(symbols[i].id);
}

core::Result<Bpe> Bpe::Parse(const Field& model, ModelTables* tables) {
  Bpe bpe;
  HOGNOSE_TRY(bpe.ReadOptions(model));
  if (tables == nullptr) {
    HOGNOSE_TRY(bpe.ReadVocabulary(model));
    HOGNOSE_TRY(bpe.ReadMerges(model));
  } else {
    if (!bpe.prefix_.empty()) return Wrong(model.Member("continuing_subword_prefix"), "none here");
    bpe.vocabulary_ = std::move(tables->vocabulary);
    bpe.merges_ = std::move(tables->merges);
  }
  bpe.FindByteIds();
  return bpe;
}

core::Status Bpe::ReadOptions(const Field& model) {
  double dropout = 0;
  const Field field = model.Member("dropout");
  if (field.Has() && (!field.value->AsDouble(&dropout) || dropout != 0)) {
    return Wrong(field, "null or 0: random merges are not supported");
  }
  has_unk_ = model.Member("unk_token").Has();
  unk_path_ = model.Member("unk_token").path;
  HOGNOSE_ASSIGN(unk_token_, ReadString(model, "unk_token", ""));
  HOGNOSE_ASSIGN(prefix_, ReadString(model, "continuing_subword_prefix", ""));
  HOGNOSE_ASSIGN(suffix_, ReadString(model, "end_of_word_suffix", ""));
  HOGNOSE_ASSIGN(fuse_unk_, ReadBool(model, "fuse_unk", false));
  HOGNOSE_ASSIGN(byte_fallback_, ReadBool(model, "byte_fallback", false));
  HOGNOSE_ASSIGN(ignore_merges_, ReadBool(model, "ignore_merges", false));
  return {};
}

core::Status Bpe::ReadVocabulary(const Field& model) {
  const Field field = model.Member("vocab");
  const auto* vocab = field.Has() ? field.value->AsObject() : nullptr;
  if (vocab == nullptr) return Wrong(field, "an object of tokens and ids");
  size_t bytes = 0;
  for (const auto& [token, id] : *vocab) bytes += token.size();
  vocabulary_.Reserve(vocab->size(), bytes);
  for (const auto& [token, value] : *vocab) {
    const auto* id = value.AsInt();
    if (id == nullptr || *id < 0 || *id >= Vocabulary::kIdLimit) {
      return Wrong({&value, field.path + "[\"" + token + "\"]"},
                   "an id from 0 to " + std::to_string(Vocabulary::kIdLimit - 1));
    }
    if (!vocabulary_.Add(token, static_cast<int32_t>(*id))) {
      return Wrong({&value, field.path + "[\"" + token + "\"]"},
                   "an id that no other token has; \"" +
                       std::string(vocabulary_.Token(static_cast<int32_t>(*id))) + "\" has it");
    }
  }
  HOGNOSE_CHECK(vocabulary_.Index());  // the keys of an object are unique
  return {};
}

core::Status Bpe::ReadMerges(const Field& model) {
  const Field field = model.Member("merges");
  const auto* merges = field.Has() ? field.value->AsArray() : nullptr;
  if (merges == nullptr) return Wrong(field, "an array");
  merges_.Reserve(merges->size());
  MergeList list(vocabulary_, prefix_, &merges_);
  for (size_t i = 0; i < merges->size(); ++i) {
    const core::Value& value = (*merges)[i];
    std::string_view left, right;
    if (const auto* line = value.AsString()) {
      if (line->starts_with("#version")) continue;  // the first line of an old merges.txt
      const size_t space = line->find(' ');
      left = std::string_view(*line).substr(0, space);
      right = space == std::string::npos ? "" : std::string_view(*line).substr(space + 1);
    } else if (const auto* pair = value.AsArray(); pair != nullptr && pair->size() == 2) {
      const auto* first = (*pair)[0].AsString();
      const auto* second = (*pair)[1].AsString();
      if (first != nullptr && second != nullptr) left = *first, right = *second;
    }
    const bool spaced = value.AsString() != nullptr && right.find(' ') != std::string_view::npos;
    if (left.empty() || right.empty() || spaced || !list.Add(left, right)) {
      const std::string want = left.empty() || right.empty() || spaced
                                   ? "\"a b\" or [\"a\", \"b\"]"
                                   : "two tokens of the vocabulary that make a third";
      if (value.AsString() != nullptr || left.empty()) {
        return Wrong({&value, field.path + "[" + std::to_string(i) + "]"}, want);
      }
      return core::Status::Failed(field.path + "[" + std::to_string(i) + "]: got [\"" +
                                  std::string(left) + "\", \"" + std::string(right) + "\"], want " +
                                  want);
    }
  }
  merges_.Index();
  return {};
}

void Bpe::FindByteIds() {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  all_byte_level_ids_ = prefix_.empty() && suffix_.empty();
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendChar(ByteToChar(static_cast<uint8_t>(byte)), &text);
    byte_level_ids_[byte] = vocabulary_.Find(text).value_or(-1);
    // Bytes that are in no UTF-8 text need no token.
    const bool needed = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (needed && byte_level_ids_[byte] < 0) all_byte_level_ids_ = false;
    text = {'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'};
    fallback_ids_[byte] = vocabulary_.Find(text).value_or(-1);
  }
}

}  // namespace hognose::io::tokenizer
