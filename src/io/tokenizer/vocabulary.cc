#include "io/tokenizer/vocabulary.h"

#include <bit>
#include <functional>

namespace hognose::io::tokenizer {
namespace {

uint64_t Hash(std::string_view token) { return std::hash<std::string_view>()(token); }

}  // namespace

void Vocabulary::Reserve(size_t tokens, size_t text_bytes) {
  text_.reserve(text_bytes);
  spans_.reserve(tokens);
  Grow(std::bit_ceil(2 * tokens + 2));
}

bool Vocabulary::Add(std::string_view token, int32_t id) {
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  if (spans_[id].used) return false;
  spans_[id].begin = static_cast<uint32_t>(text_.size());
  spans_[id].size = static_cast<uint32_t>(token.size());
  spans_[id].used = 1;
  text_.append(token);
  ++count_;
  if (2 * count_ > slots_.size()) Grow(std::bit_ceil(4 * count_));
  Insert(Hash(token), id);
  return true;
}

std::optional<int32_t> Vocabulary::Find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t hash = Hash(token);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash >> 32 && Token(slots_[i].id) == token) return slots_[i].id;
  }
  return std::nullopt;
}

void Vocabulary::Insert(uint64_t hash, int32_t id) {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id >= 0) i = (i + 1) & mask;
  slots_[i] = {static_cast<uint32_t>(hash >> 32), id};
}

void Vocabulary::Grow(size_t slots) {
  if (slots <= slots_.size()) return;
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) Insert(Hash(Token(slot.id)), slot.id);
  }
}

}  // namespace hognose::io::tokenizer
