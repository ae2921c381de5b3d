// What the methods of Scan are made of: a piece of one sequence's time and channels, as pointers.
// For the files of this folder only.
#pragma once

#include "kernels/scan/scan.h"

namespace hognose::kernels::internal {

// Steps in the order of the scan: row i is at pointer + i * step, which is negative for reverse.
struct ScanPieceArgs {
  ScanOp op = ScanOp::kSum;
  bool exclusive = false;
  const float* a = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  ptrdiff_t a_step = 0;
  ptrdiff_t x_step = 0;
  ptrdiff_t y_step = 0;
  size_t steps = 0;
  size_t channels = 0;
};

// Steps [begin, begin + steps), counted in the order of the scan, and channels [c, c + channels) of
// sequence b. steps > 0.
ScanPieceArgs PieceOf(const ScanArgs& args, size_t b, size_t begin, size_t steps, size_t c,
                      size_t channels);

inline size_t CeilDiv(size_t n, size_t by) { return (n + by - 1) / by; }

// How the work is split: by the shape alone. kSequential: a task takes some channels, of several
// sequences where they are short.
struct SequentialTasks {
  size_t channels, sequences;
};
SequentialTasks SequentialTasksOf(const ScanShape& shape);
// Time in `count` pieces of the same number of steps, the last one shorter: kSegmented, kChunked.
struct TimePieces {
  size_t steps, count;
};
TimePieces SegmentsOf(const ScanShape& shape);
TimePieces ChunksOf(const ScanShape& shape);
// Blocks of steps of one sequence, each one task: kBlelloch (scan_blelloch.cc).
size_t BlellochBlocks(const ScanShape& shape) noexcept;

// Without `initial`.
float Identity(ScanOp op);

// Writes y; state [channels] is h before the piece and then after it. The result has the same bits
// for any split of the channels, except a split of C = 1, 2, 4, 8 without gaps.
void ScanPiece(const ScanPieceArgs& piece, float* state) noexcept;

// The piece as one step: h after it is total_a h + total_x for kLinear, else op(h, total_x);
// total_a and total_x [channels], total_a for kLinear only.
void TotalPiece(const ScanPieceArgs& piece, float* total_a, float* total_x) noexcept;

// The state after a piece, of its total as TotalPiece gives it and the state before it. All
// [channels].
void AdvanceState(ScanOp op, size_t channels, const float* total_a, const float* total_x,
                  const float* before, float* after) noexcept;

// scan_blelloch.cc
size_t BlellochScratch(const ScanShape& shape) noexcept;
void ScanBlelloch(core::Exec& exec, const ScanArgs& args) noexcept;

}  // namespace hognose::kernels::internal
