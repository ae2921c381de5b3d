// How the chunked forms of ssd_scan lay out their scratch: what the forward and the backward pass
// share. Formulas: math.md 1.3 and 1.5.
#pragma once

#include <cstddef>

#include "core/arena.h"
#include "kernels/ssd_scan/ssd_scan.h"
#include "kernels/state_chunks.h"

namespace hognose::kernels::internal {

// What every head and every group has for its chunks. The sums of dt a since the chunk's start are
// kept in two floats each: differences of them are exponents, and one float would lose their small
// ones behind a large one.
struct ChunkTables {
  core::Mat<float> dt;      // [H, L]
  core::Mat<float> sum;     // [H, L]: s, inclusive
  core::Mat<float> sum_lo;  // [H, L]: what s's float lacks
  core::Mat<float> bt;      // [chunks G N, Q]: b transposed
  core::Mat<float> ct;      // [chunks G N, Q]: c transposed; backward only
  core::Mat<float> cb;      // [chunks G Q, Q]: row i, column j: c_i . b_j; backward b_i . c_j

  static ChunkTables Carve(core::Arena& arena, size_t steps, size_t heads, size_t groups,
                           size_t states, bool backward) {
    const size_t blocks = Chunks(steps) * groups;
    return {arena.NewMat<float>(heads, steps),
            arena.NewMat<float>(heads, steps),
            arena.NewMat<float>(heads, steps),
            arena.NewMat<float>(blocks * states, kChunk),
            arena.NewMat<float>(backward ? blocks * states : 0, kChunk),
            arena.NewMat<float>(blocks * kChunk, kChunk)};
  }
};

}  // namespace hognose::kernels::internal
