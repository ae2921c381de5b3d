// The shape of linear's tiles and tasks, and the loops around the tiles, shared by linear.cc
// (Highway) and linear_avx512bf16.cc (our own target).
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/cpu.h"
#include "hwy/base.h"
#include "kernels/linear/linear.h"

namespace hognose::kernels::internal {

// Rows of w in a tile. Four sums are finished together (SumLanes4).
inline constexpr size_t kTileW = 4;

// Whether a tile's weights come from memory (those of the first rows of x) or from a cache.
enum class From { kMemory, kCache };

// A tile reads four rows at once, which the processor's own prefetcher doesn't follow; so tiles
// that wait for memory ask, line by line in address order, for the weights that come kAhead bytes
// later. Measured on Zen 4, one thread, 77 MB of bf16: 10.5 GB/s without, 14 with 6 KiB ahead, 23.5
// with 24 KiB into the second-level cache. Asking for the next tile's operands where they are
// cached costs more than it brings.
inline constexpr size_t kAhead = size_t{24} << 10;
// `tile`: where the tile's weights begin; `done`: how many bytes of them were read so far.
// Always inline: GCC drops calls to a function that does nothing but prefetch.
__attribute__((always_inline)) inline void PrefetchAhead(const void* tile, size_t done) {
  constexpr int kRead = 0, kSecondLevel = 2;
  __builtin_prefetch(static_cast<const char*>(tile) + kAhead + done, kRead, kSecondLevel);
}

// Rows of w in one task: about 64 KiB of weights, a multiple of the tile.
inline size_t TaskRows(size_t k, size_t element_bytes) {
  constexpr size_t kTaskBytes = size_t{64} << 10;
  const size_t rows = kTaskBytes / (k * element_bytes) / kTileW * kTileW;
  return std::clamp(rows, kTileW, size_t{256});
}

// Rows of x that stay in the second-level cache while the rows of w of a task pass, each tile of
// which stays in the first: half of it.
inline size_t BlockX(size_t tile_x, size_t k, size_t element_bytes) {
  const size_t rows = core::Cpu().l2_bytes / 2 / (k * element_bytes);
  return std::max(rows / tile_x, size_t{1}) * tile_x;
}

// Rows of x in each tile of so many rows: at most `most`, and as even as possible.
inline size_t EvenTile(size_t rows, size_t most) {
  const size_t tiles = (rows + most - 1) / most;
  return (rows + tiles - 1) / tiles;
}

// GCC 12 doesn't see that a vector store fills `sums`.
HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wmaybe-uninitialized")
// y[l, m .. m + count) (+)= sums + bias.
inline void Finish(const LinearArgs& a, size_t l, size_t m, size_t count, const float* sums) {
  float* y = a.y.Row(l) + m;
  for (size_t i = 0; i < count; ++i) {
    float sum = sums[i];
    if (a.bias.size != 0) sum += a.bias.data[m + i];
    y[i] = a.accumulate ? y[i] + sum : sum;
  }
}
HWY_DIAGNOSTICS(pop)

// Calls tile(l, rows_x, m, rows_w) over rows [m_begin, m_end) of w and all rows of x, at most
// `most_x` of them at a time.
template <typename Tile>
void ForTiles(const LinearArgs& a, size_t most_x, size_t x_bytes, size_t m_begin, size_t m_end,
              const Tile& tile) {
  const size_t block = BlockX(most_x, a.x.cols, x_bytes);
  for (size_t l0 = 0; l0 < a.x.rows; l0 += block) {
    const size_t l_end = std::min(l0 + block, a.x.rows);
    const size_t tile_x = EvenTile(l_end - l0, most_x);
    for (size_t m = m_begin; m < m_end; m += kTileW) {
      for (size_t l = l0; l < l_end; l += tile_x) {
        tile(l, std::min(tile_x, l_end - l), m, std::min(kTileW, m_end - m));
      }
    }
  }
}

// A [L, Kp] matrix of 16-bit activations in LinearArgs::scratch, with a scale a row and, for INT4,
// what makes up for codes that are stored plus eight.
struct QuantizedRows {
  // Lanes of 32 bits that an offset's vector may have (16 for AVX-512).
  static constexpr size_t kOffsetLanes = 16;

  size_t padded = 0;  // Kp
  size_t groups = 0;
  int16_t* codes = nullptr;
  float* scales = nullptr;
  int32_t* offsets = nullptr;

  int16_t* Codes(size_t row) const { return codes + row * padded; }
  // -8 times the sum of the codes of group g of the row, in the first lane of a vector of zeros.
  int32_t* Offset(size_t row, size_t g) const {
    return offsets + (row * groups + g) * kOffsetLanes;
  }
};

// Whether a product with so many rows of x unpacks the codes of a tile of w before it meets them:
// the same integers, in fewer instructions when enough rows share the work. A tile's codes must fit
// the stack.
inline constexpr size_t kMaxUnpacked = 8192;
constexpr bool UnpackCodes(size_t rows, size_t padded) {
  return rows >= 16 && padded <= kMaxUnpacked;
}

// linear_avx512bf16.cc
void LinearAvx512Bf16(core::Exec& exec, const LinearArgs& args) noexcept;
// linear_amx.cc; rows of w >= kAmxRows
inline constexpr size_t kAmxRows = 16;
void LinearAmx(core::Exec& exec, const LinearArgs& args) noexcept;
void LinearAmxQuantized(core::Exec& exec, const LinearArgs& args) noexcept;
// linear_quantized.cc
void LinearQuantized(core::Exec& exec, const LinearArgs& args) noexcept;

}  // namespace hognose::kernels::internal
