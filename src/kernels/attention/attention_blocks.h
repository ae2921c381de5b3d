// How attention's work is cut: rows of queries for a task, keys for a softmax.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/attention/attention.h"

namespace hognose::kernels::internal {

// Keys whose softmax is taken at once, and keys whose sums begin anew. Both decide the order of a
// sum, so they depend on nothing.
inline constexpr size_t kUnitKeys = 128;
inline constexpr size_t kSpanKeys = 512;
// Rows of one task; a row is one query of one head. Packing its keys costs a hundredth of its time.
inline constexpr size_t kBlockRows = 96;
// With up to so many rows in all, spans are tasks of their own.
inline constexpr size_t kMaxSplitRows = 1024;

// How a task goes through its rows and keys: `keys` are packed at once, of which `rows` use one unit
// after the other. Not a matter of results.
struct AttentionTile {
  size_t rows;
  size_t keys;
};

inline constexpr size_t kMaxTileRows = 48;
// Floats of a tile's keys: they are on the stack, and so are its values.
inline constexpr size_t kMaxTileFloats = 128 * kMaxAttentionWidth;

// Half the first-level cache for the queries, scores and sums of the rows, a quarter of the second
// for the packed keys and values.
inline AttentionTile ChooseAttentionTile(size_t l1d_bytes, size_t l2_bytes, size_t width) {
  constexpr size_t kStep = 6;  // rows of a product's tile
  const size_t row_bytes = (2 * width + kUnitKeys) * sizeof(float);
  const size_t rows = l1d_bytes / 2 / row_bytes / kStep * kStep;
  const size_t fit = std::min(l2_bytes / 4 / (2 * width * sizeof(float)), kMaxTileFloats / width);
  size_t keys = kSpanKeys;
  while (keys > kUnitKeys && keys > fit) keys /= 2;
  return {std::clamp(rows, kStep, kMaxTileRows), keys};
}

struct KeyRange {
  size_t begin, end;

  bool empty() const { return begin >= end; }
  KeyRange Within(size_t from, size_t size) const {
    return {std::max(begin, from), std::min(end, from + size)};
  }
};

// Rows [row, row + rows) of one key head of one sequence. Row r is query r / group of the head
// r % group of the key head's group.
struct AttentionBlock {
  size_t query_begin, queries;  // the sequence's rows of q
  size_t key_begin, keys;       // and of k
  size_t key_head;
  size_t row, rows;

  // Counted from key_begin.
  KeyRange Sees(const AttentionArgs& a, size_t r) const {
    if (!a.causal) return {0, keys};
    const size_t end = keys - queries + (row + r) / (a.heads / a.key_heads) + 1;
    return {a.window > 0 && end > a.window ? end - a.window : 0, end};
  }
  size_t QueryRow(const AttentionArgs& a, size_t r) const {
    return query_begin + (row + r) / (a.heads / a.key_heads);
  }
  size_t Head(const AttentionArgs& a, size_t r) const {
    const size_t group = a.heads / a.key_heads;
    return key_head * group + (row + r) % group;
  }
};

inline size_t Sequences(const AttentionArgs& a) {
  return a.query_offsets.size == 0 ? 1 : a.query_offsets.size - 1;
}

// A block of sequence `b` without rows.
inline AttentionBlock SequenceAt(const AttentionArgs& a, size_t b) {
  if (a.query_offsets.size == 0) return {0, a.q.rows, 0, a.k.rows, 0, 0, 0};
  const size_t query = a.query_offsets[b], key = a.key_offsets[b];
  return {query, a.query_offsets[b + 1] - query, key, a.key_offsets[b + 1] - key, 0, 0, 0};
}

// Blocks of one key head of a sequence.
inline size_t BlocksOf(const AttentionArgs& a, const AttentionBlock& sequence) {
  if (sequence.keys == 0) return 0;
  return (sequence.queries * (a.heads / a.key_heads) + kBlockRows - 1) / kBlockRows;
}

inline size_t Blocks(const AttentionArgs& a) {
  size_t blocks = 0;
  for (size_t b = 0; b < Sequences(a); ++b) blocks += BlocksOf(a, SequenceAt(a, b));
  return blocks * a.key_heads;
}

inline AttentionBlock BlockAt(const AttentionArgs& a, size_t index) {
  size_t b = 0;
  AttentionBlock block = SequenceAt(a, 0);
  while (index >= BlocksOf(a, block) * a.key_heads) {
    index -= BlocksOf(a, block) * a.key_heads;
    block = SequenceAt(a, ++b);
  }
  block.key_head = index / BlocksOf(a, block);
  block.row = index % BlocksOf(a, block) * kBlockRows;
  block.rows =
      std::min(kBlockRows, block.queries * (a.heads / a.key_heads) - block.row);
  return block;
}

inline size_t Spans(size_t keys) { return (keys + kSpanKeys - 1) / kSpanKeys; }

inline size_t MostSpans(const AttentionArgs& a) {
  size_t spans = 0;
  for (size_t b = 0; b < Sequences(a); ++b) spans = std::max(spans, Spans(SequenceAt(a, b).keys));
  return spans;
}

// Whether spans are tasks of their own. A matter of speed only.
inline bool SplitsKeys(size_t rows, size_t spans) { return rows <= kMaxSplitRows && spans > 1; }

}  // namespace hognose::kernels::internal
