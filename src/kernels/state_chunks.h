// Scans of a matrix state by chunks of steps: the sizes that ssd_scan and linear_attention share.
#pragma once

#include <cstddef>

namespace hognose::kernels::internal {

// Steps of a chunk, Q.
inline constexpr size_t kChunk = 64;
// A multiple of every target's tile: rows of local matrices are rounded up to it.
inline constexpr size_t kTileColumns = 64;

constexpr size_t Chunks(size_t steps) { return (steps + kChunk - 1) / kChunk; }
constexpr size_t TileColumns(size_t cols) {
  return (cols + kTileColumns - 1) / kTileColumns * kTileColumns;
}

}  // namespace hognose::kernels::internal
