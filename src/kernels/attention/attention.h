// attention: softmax attention, forward; grouped queries, causal, sliding window, packed sequences.
//
// Formula    s_j = scale q_i . k_j;  y_i = sum_j exp(s_j) v_j / sum_j exp(s_j), j all keys that
// query i
//            sees: its sequence's. With `causal` the queries are the last of the keys, query i of
//            Lq is key t = Lk - Lq + i, and sees j <= t; with a window W also j > t - W. Query head
//            h reads key head h / (H / G).
// Operands   q, y [Lq, H P]; k, v [Lk, G P], f32, 1 <= P <= kMaxAttentionWidth, H a multiple of G.
//            y may be q itself (same pointer and stride), and no other input. Sequences one behind
//            the other: sequence b is rows [offsets[b], offsets[b + 1]) of q and of k, each with
//            offsets of its own. With `causal` no sequence has more queries than keys. A sequence
//            without keys or without queries is left out: its rows of y stay as they are.
// Scratch    AttentionScratch floats, and 512 KiB of each thread's stack.
// Threads    (sequence, key head, 96 to 384 rows of queries), or with few rows (sequence, some key
//            heads, 512 keys). Blocks of keys begin at fixed places of a sequence and a query's
//            sums have one order: the same bits for any thread count, any cache, any split of the
//            queries into calls, alone or packed. (So a single query sums its scores as a prompt's
//            queries do, which costs it a transposition of its keys.)
// Errors     none; shapes are checked by HOGNOSE_DCHECK. A NaN that a query sees makes its result
//            NaN, one that it doesn't see changes nothing. A score of -infinity has weight 0; a
//            query with no other score, or one of +infinity, gets NaN.
// Accuracy   a weight's relative error is e = ((P + 8) S / 2 + 3) eps, S the largest |scale| sum_p
//            |q_i k_j|; |error| <= (2 e + (L / 16 + 140) eps) max |v|, L the keys that it sees.
// Cost       4 P operations for each head and pair of a query and a key that it sees.
// Source     M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018;
//            T. Dao et al., "FlashAttention", 2022. Oracle: AttentionRef, scalar, double.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

inline constexpr size_t kMaxAttentionWidth = 256;

struct AttentionArgs {
  core::Mat<const float> q = {};
  core::Mat<const float> k = {};
  core::Mat<const float> v = {};
  size_t heads = 1;                            // H
  size_t key_heads = 1;                        // G
  core::Vec<const size_t> query_offsets = {};  // [B + 1]; empty: one sequence
  core::Vec<const size_t> key_offsets = {};    // [B + 1]
  bool causal = true;
  size_t window = 0;   // W; 0: no window. Only with `causal`.
  float scale = 0.0f;  // 0: P^-1/2
  core::Mat<float> y = {};
  core::Vec<float> scratch = {};
};

// Floats of AttentionArgs::scratch for `queries` rows of q, and sequences of at most `keys` keys.
// Never less for more of either.
size_t AttentionScratch(size_t queries, size_t keys, size_t heads, size_t width);

void Attention(core::Exec& exec, const AttentionArgs& args) noexcept;

void AttentionRef(const AttentionArgs& args);

}  // namespace hognose::kernels
