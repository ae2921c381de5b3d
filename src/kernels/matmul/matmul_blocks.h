// How matmul cuts its work into blocks and tasks, shared by matmul.cc (Highway) and
// matmul_avx512bf16.cc (our own target).
#pragma once

#include "kernels/matmul/matmul.h"

namespace hognose::kernels::internal {

// Rows of c whose left side is packed at once.
inline constexpr size_t kMaxPackedRows = 3072;
// Rows and columns of c in one task: its part of a is in the second-level cache, a panel of b in
// the first or second.
inline constexpr size_t kTaskRows = 96;
inline constexpr size_t kTaskCols = 128;
inline constexpr size_t kPackRows = 16;  // of an operand, in one task; a multiple of two

// Rows [k0, k0 + depth) of the product's sum, rows [m0, m0 + rows) of c.
struct Block {
  size_t k0, depth, m0, rows;
  float* b;  // panels, as the passes lay them out
  float* a;
};

// The work on one block, on one target. The packing ones take [begin, end) of the rows in which
// their operand lies: k, or for a left side that is not transposed and yet packed, m.
struct BlockPasses {
  void (*pack_a)(const MatmulArgs&, const Block&, size_t begin, size_t end);  // null: not packed
  void (*pack_b)(const MatmulArgs&, const Block&, size_t begin, size_t end);
  // Rows [m_begin, m_end) of the block, columns [n_begin, n_end) of c. Both begin with a tile.
  void (*multiply)(const MatmulArgs&, const Block&, size_t m_begin, size_t m_end, size_t n_begin,
                   size_t n_end);
};

// matmul_avx512bf16.cc
BlockPasses Avx512Bf16Passes();

}  // namespace hognose::kernels::internal
