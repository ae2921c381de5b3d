// The merges of a BPE model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/hash_index.h"
#include "io/tokenizer/vocabulary.h"

namespace hognose::io::tokenizer {

// The merge of two neighbouring ids, found by hashing.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  // First all merges are added, in the order of their ranks, then they are indexed.
  void Reserve(size_t merges) { merges_.reserve(merges); }
  void Add(int32_t left, int32_t right, int32_t id) { merges_.push_back({left, right, id}); }
  // Makes Find see the merges. Of several of one pair the last one counts, as in the tokenizers
  // library.
  void Index();
  Merge Find(int32_t left, int32_t right) const {
    const size_t rank = index_.Find(Hash(left, right), [&](size_t other) {
      return merges_[other].left == left && merges_[other].right == right;
    });
    if (rank == HashIndex::kNone) return {};
    return {static_cast<uint32_t>(rank), merges_[rank].id};
  }

 private:
  struct Pair {
    int32_t left;
    int32_t right;
    int32_t id;
  };

  static uint64_t Hash(int32_t left, int32_t right) {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return key * 0x9E3779B97F4A7C15u;
  }

  std::vector<Pair> merges_;  // by rank
  HashIndex index_;
};

// Adds merges to a table, in the order of the list. The vocabulary must be indexed.
class MergeList {
 public:
  // `prefix` is the model's continuing_subword_prefix.
  MergeList(const Vocabulary& vocabulary, std::string_view prefix, MergeTable* table)
      : vocabulary_(vocabulary), prefix_(prefix), table_(*table) {}

  // False if the tokens or their concatenation (without the right one's prefix) are not tokens.
  [[nodiscard]] bool Add(std::string_view left, std::string_view right);

 private:
  std::optional<int32_t> FindMerged(std::string_view left, std::string_view right);

  const Vocabulary& vocabulary_;
  std::string prefix_;
  MergeTable& table_;
  int32_t last_ = -1;  // what the merge before made
  std::string merged_;
};

}  // namespace hognose::io::tokenizer
