// Vocabulary: tokens and their ids, both ways, in one block of text and one hash table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/hash_index.h"

namespace hognose::io::tokenizer {

class Vocabulary {
 public:
  // Ids are below this: arrays are indexed by id, so a damaged file must not make them huge.
  static constexpr int64_t kIdLimit = int64_t{1} << 22;

  // First all tokens are added, then they are indexed.
  void Reserve(size_t tokens, size_t text_bytes);
  // False if `id` is taken. 0 <= id < kIdLimit.
  [[nodiscard]] bool Add(std::string_view token, int32_t id);
  // Makes Find see the tokens. False if two are the same.
  [[nodiscard]] bool Index();

  std::optional<int32_t> Find(std::string_view token) const;
  void Prefetch(std::string_view token) const;  // for a Find soon
  // Whether `id` names a token, and which.
  bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() && spans_[id].used;
  }
  std::string_view Token(int32_t id) const {
    return std::string_view(text_).substr(spans_[id].begin, spans_[id].size);
  }

  size_t count() const { return count_; }
  // One above the largest id.
  size_t id_end() const { return spans_.size(); }
  // All tokens in the order in which they were added.
  std::string_view text() const { return text_; }

 private:
  struct Span {
    uint32_t begin = 0;
    uint32_t size : 31 = 0;
    uint32_t used : 1 = 0;
  };
  std::string text_;
  std::vector<Span> spans_;  // by id
  HashIndex index_;
  size_t count_ = 0;
};

}  // namespace hognose::io::tokenizer
