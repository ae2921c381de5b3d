#include "io/tokenizer/vocabulary.h"

#define XXH_INLINE_ALL  // tokens are short: a call would cost as much as the hash
#include <xxhash.h>

namespace hognose::io::tokenizer {
namespace {

uint64_t Hash(std::string_view token) { return XXH3_64bits(token.data(), token.size()); }

}  // namespace

void Vocabulary::Reserve(size_t tokens, size_t text_bytes) {
  text_.reserve(text_bytes);
  spans_.reserve(tokens);
}

bool Vocabulary::Add(std::string_view token, int32_t id) {
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  Span& span = spans_[id];
  if (span.used) return false;
  span.begin = static_cast<uint32_t>(text_.size());
  span.size = static_cast<uint32_t>(token.size());
  span.used = 1;
  text_.append(token);
  ++count_;
  return true;
}

bool Vocabulary::Index() {
  index_.Reset(count_, spans_.size());
  for (size_t id = 0; id < spans_.size(); ++id) {
    if (!spans_[id].used) continue;
    const std::string_view token = Token(static_cast<int32_t>(id));
    auto slot = index_.At(
        Hash(token), [&](size_t other) { return Token(static_cast<int32_t>(other)) == token; });
    if (!slot.free()) return false;
    slot.Set(id);
  }
  return true;
}

void Vocabulary::Prefetch(std::string_view token) const { index_.Prefetch(Hash(token)); }

std::optional<int32_t> Vocabulary::Find(std::string_view token) const {
  const size_t id = index_.Find(
      Hash(token), [&](size_t other) { return Token(static_cast<int32_t>(other)) == token; });
  if (id == HashIndex::kNone) return std::nullopt;
  return static_cast<int32_t>(id);
}

}  // namespace hognose::io::tokenizer
