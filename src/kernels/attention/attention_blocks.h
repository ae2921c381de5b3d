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
// From one row of a unit's transposed keys to the next: no power of two, so that a key's elements
// don't meet in a few sets of the cache.
inline constexpr size_t kKeyStride = kUnitKeys + 16;
// Rows of one task; a row is one query of one head.
inline constexpr size_t kLeastRows = 96;
inline constexpr size_t kMaxBlockRows = 384;
// Floats of their queries, which are on the stack, and so are their sums.
inline constexpr size_t kMaxBlockFloats = kLeastRows * kMaxAttentionWidth;
// With up to so many rows in all, spans are tasks of their own.
inline constexpr size_t kMaxSplitRows = 1024;

// How a task goes through its rows and keys: `keys` are packed at once, of which `rows` use one
// unit after the other. Not a matter of results.
struct AttentionTile {
  size_t rows;
  size_t keys;
};

inline constexpr size_t kMaxTileRows = 48;
// Floats of a tile's values, which are on the stack, and so are its keys.
inline constexpr size_t kMaxTileFloats = kUnitKeys * kMaxAttentionWidth;
inline constexpr size_t kMaxTileKeys = kMaxTileFloats / kUnitKeys * kKeyStride;

// A row of sums or values: whole tiles of every target's products.
constexpr size_t PaddedWidth(size_t width) { return (width + 63) / 64 * 64; }

// Half the first-level cache for the queries, scores and sums of the rows, a quarter of the second
// for the packed keys and values.
inline AttentionTile ChooseAttentionTile(size_t l1d_bytes, size_t l2_bytes, size_t width) {
  constexpr size_t kStep = 6;  // rows of a product's tile
  width = PaddedWidth(width);
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

// Rows [row, row + rows) of each of a few key heads of one sequence. Row r is query r / group of
// the head r % group of the key head's group.
struct AttentionBlock {
  size_t query_begin, queries;  // the sequence's rows of q
  size_t key_begin, keys;       // and of k
  size_t key_head, key_heads;
  size_t row, rows;

  // Counted from key_begin.
  KeyRange Sees(const AttentionArgs& a, size_t r) const {
    if (!a.causal) return {0, keys};
    const size_t end = keys - queries + (row + r) / (a.heads / a.key_heads) + 1;
    return {a.window > 0 && end > a.window ? end - a.window : 0, end};
  }
  // Row r of the block's key head g: in q and y, its row and its head.
  size_t QueryRow(const AttentionArgs& a, size_t r) const {
    return query_begin + (row + r) / (a.heads / a.key_heads);
  }
  size_t Head(const AttentionArgs& a, size_t g, size_t r) const {
    const size_t group = a.heads / a.key_heads;
    return (key_head + g) * group + (row + r) % group;
  }
};

inline size_t Sequences(const AttentionArgs& a) {
  return a.query_offsets.size == 0 ? 1 : a.query_offsets.size - 1;
}

// A block of sequence `b` without heads and rows.
inline AttentionBlock SequenceAt(const AttentionArgs& a, size_t b) {
  if (a.query_offsets.size == 0) return {0, a.q.rows, 0, a.k.rows, 0, 0, 0, 0};
  const size_t query = a.query_offsets[b], key = a.key_offsets[b];
  return {query, a.query_offsets[b + 1] - query, key, a.key_offsets[b + 1] - key, 0, 0, 0, 0};
}

inline size_t Spans(size_t keys) { return (keys + kSpanKeys - 1) / kSpanKeys; }

// How a call is cut into tasks. A matter of speed only.
struct AttentionCut {
  size_t rows;       // of a block
  size_t key_heads;  // of a block
  size_t spans;      // that are tasks of their own; 1: a block is a task
  size_t blocks;     // in all

  explicit AttentionCut(const AttentionArgs& a) {
    constexpr size_t kTasks = 64, kSplitTasks = 16;
    const size_t padded = PaddedWidth(a.q.cols / a.heads), all_rows = a.q.rows * a.heads;
    // Every block packs its keys once more: it has many rows where there are enough for kTasks.
    const size_t most = std::min(kMaxBlockRows, kMaxBlockFloats / padded / kLeastRows * kLeastRows);
    rows = std::clamp(all_rows / kTasks / kLeastRows * kLeastRows, kLeastRows, most);
    size_t most_queries = 1;
    spans = 0;
    for (size_t b = 0; b < Sequences(a); ++b) {
      const AttentionBlock sequence = SequenceAt(a, b);
      spans = std::max(spans, Spans(sequence.keys));
      most_queries = std::max(most_queries, sequence.queries);
    }
    if (all_rows > kMaxSplitRows) spans = 1;
    // Few rows wait for memory, which is fastest where it is read from end to end: all heads of a
    // key, if that leaves kSplitTasks.
    const size_t fit = most / std::min(rows, most_queries * (a.heads / a.key_heads));
    const size_t enough = a.key_heads * Sequences(a) * spans / kSplitTasks;
    key_heads = spans > 1 ? std::clamp<size_t>(enough, 1, std::min(a.key_heads, fit)) : 1;
    blocks = 0;
    for (size_t b = 0; b < Sequences(a); ++b) blocks += BlocksOf(a, SequenceAt(a, b));
  }

  // Blocks of one run of key heads of a sequence.
  size_t RowBlocks(const AttentionArgs& a, const AttentionBlock& sequence) const {
    if (sequence.keys == 0) return 0;
    return (sequence.queries * (a.heads / a.key_heads) + rows - 1) / rows;
  }
  size_t BlocksOf(const AttentionArgs& a, const AttentionBlock& sequence) const {
    return RowBlocks(a, sequence) * ((a.key_heads + key_heads - 1) / key_heads);
  }

  AttentionBlock BlockAt(const AttentionArgs& a, size_t index) const {
    size_t b = 0;
    AttentionBlock block = SequenceAt(a, 0);
    while (index >= BlocksOf(a, block)) {
      index -= BlocksOf(a, block);
      block = SequenceAt(a, ++b);
    }
    block.key_head = index / RowBlocks(a, block) * key_heads;
    block.key_heads = std::min(key_heads, a.key_heads - block.key_head);
    block.row = index % RowBlocks(a, block) * rows;
    block.rows = std::min(rows, block.queries * (a.heads / a.key_heads) - block.row);
    return block;
  }
};

// Attention with a tile of the caller's choice.
void AttentionByTiles(core::Exec& exec, const AttentionArgs& args,
                      const AttentionTile& tile) noexcept;

}  // namespace hognose::kernels::internal
