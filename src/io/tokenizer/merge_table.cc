#include "io/tokenizer/merge_table.h"

#include <algorithm>

namespace hognose::io::tokenizer {

void MergeTable::Index() {
  constexpr size_t kAhead = 16;
  index_.Reset(merges_.size(), merges_.size());
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const Pair& next = merges_[std::min(rank + kAhead, merges_.size() - 1)];
    index_.Prefetch(Hash(next.left, next.right));
    const Pair& pair = merges_[rank];
    auto slot = index_.At(Hash(pair.left, pair.right), [&](size_t other) {
      return merges_[other].left == pair.left && merges_[other].right == pair.right;
    });
    slot.Set(rank);
  }
}

// Lists are written in the order in which their tokens were made: most often it is the next id.
std::optional<int32_t> MergeList::FindMerged(std::string_view left, std::string_view right) {
  const int32_t next = last_ + 1;
  if (vocabulary_.Has(next)) {
    const std::string_view token = vocabulary_.Token(next);
    if (token.size() == left.size() + right.size() && token.starts_with(left) &&
        token.ends_with(right)) {
      return next;
    }
  }
  merged_.assign(left).append(right);
  return vocabulary_.Find(merged_);
}

bool MergeList::Add(std::string_view left, std::string_view right) {
  vocabulary_.Prefetch(right);
  const auto left_id = vocabulary_.Find(left);
  const auto right_id = vocabulary_.Find(right);
  if (!left_id || !right_id || right.size() < prefix_.size()) return false;
  const auto id = FindMerged(left, right.substr(prefix_.size()));
  if (!id) return false;
  table_.Add(*left_id, *right_id, *id);
  last_ = *id;
  return true;
}

}  // namespace hognose::io::tokenizer
