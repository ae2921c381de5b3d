// matmul on VDPBF16PS: operands rounded to bf16, two steps of the sum in each 32-bit lane. Highway
// 1.0.3 has no such target, so these are our own functions with target attributes.
#include <algorithm>
#include <cstring>

#include "kernels/avx512.h"
#include "kernels/matmul/matmul_blocks.h"

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(HOGNOSE_AVX512_BF16)
namespace hognose::kernels::internal {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kTileRows = 6;  // its sums take 24 of 32 registers
constexpr size_t kTileVecs = 4;
constexpr size_t kTileCols = kTileVecs * kLanes;

size_t Pairs(const Block& block) { return (block.depth + 1) / 2; }
__mmask16 First(size_t count) { return static_cast<__mmask16>((1u << count) - 1); }

// 16 numbers of a row, the first `mask` of them, as bf16 in the lower halves of lanes.
__m512i Load(const float* p, __mmask16 mask) {
  const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, p));
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(rounded));
}
__m512i Load(const core::BFloat16* p, __mmask16 mask) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
}

// Two rows of `size` numbers as pairs, filled up with zeros to whole vectors; second may be null:
// zeros.
template <typename T>
void Interleave(const T* first, const T* second, size_t size, uint32_t* to) {
  for (size_t i = 0; i < size; i += kLanes) {
    const __mmask16 mask = First(std::min(kLanes, size - i));
    __m512i pair = Load(first + i, mask);
    if (second != nullptr)
      pair = _mm512_or_si512(pair, _mm512_slli_epi32(Load(second + i, mask), 16));
    _mm512_storeu_si512(to + i, pair);
  }
}

// Rows [begin, end) of b, T(k) the k-th, into panels [pairs][kTileCols] of pairs of rows.
template <typename T>
void PackPanels(const T* data, size_t stride, size_t cols, const Block& block, size_t begin,
                size_t end) {
  auto* panels = reinterpret_cast<uint32_t*>(block.b);
  for (size_t k = begin; k < end; k += 2) {
    const T* first = data + (block.k0 + k) * stride;
    const T* second = k + 1 < end ? first + stride : nullptr;
    for (size_t n = 0; n < cols; n += kTileCols) {
      const size_t count = std::min(kTileCols, cols - n);
      uint32_t* to = panels + n * Pairs(block) + k / 2 * kTileCols;
      Interleave(first + n, second == nullptr ? nullptr : second + n, count, to);
      const size_t filled = (count + kLanes - 1) / kLanes * kLanes;
      std::fill(to + filled, to + kTileCols, 0u);
    }
  }
}

void PackB(const MatmulArgs& args, const Block& block, size_t begin, size_t end) {
  if (args.w != nullptr) {
    return PackPanels(args.w->values.As<core::BFloat16>(), args.w->cols, args.c.cols, block, begin,
                      end);
  }
  PackPanels(args.b.data, args.b.stride, args.c.cols, block, begin, end);
}

// Rows of a as they lie, or, where a is transposed, tiles [pairs][kTileRows] of pairs of its rows;
// what the last tile lacks is never read.
void PackA(const MatmulArgs& args, const Block& block, size_t begin, size_t end) {
  if (!args.transpose_a) {
    for (size_t m = begin; m < end; ++m) {
      const float* from = args.a.Row(block.m0 + m) + block.k0;
      auto* to = reinterpret_cast<uint16_t*>(block.a) + m * Pairs(block) * 2;
      for (size_t k = 0; k < block.depth; k += kLanes) {
        const size_t count = std::min(kLanes, block.depth - k);
        const __m256bh y = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(First(count), from + k));
        // An odd row's last pair has a zero.
        const __mmask16 stored = First((count + 1) / 2 * 2);
        _mm256_mask_storeu_epi16(to + k, stored, reinterpret_cast<__m256i>(y));
      }
    }
    return;
  }
  auto* tiles = reinterpret_cast<uint32_t*>(block.a);
  alignas(64) uint32_t row[kMaxPackedRows];
  for (size_t k = begin; k < end; k += 2) {
    const float* first = args.a.Row(block.k0 + k) + block.m0;
    const float* second = k + 1 < end ? args.a.Row(block.k0 + k + 1) + block.m0 : nullptr;
    Interleave(first, second, block.rows, row);
    for (size_t m = 0; m < block.rows; m += kTileRows) {
      std::memcpy(tiles + m * Pairs(block) + k / 2 * kTileRows, row + m,
                  std::min(kTileRows, block.rows - m) * sizeof(uint32_t));
    }
  }
}

// Where a row's pairs lie, and how far apart.
struct Left {
  const uint32_t* data;
  size_t row, pair;
};

// c [kRows, kTileCols] (+)= a b.
template <size_t kRows>
void Tile(const Left& a, const uint32_t* b, size_t pairs, bool add, float* c, size_t stride) {
  __m512 sum[kRows][kTileVecs];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileVecs; ++j) sum[i][j] = _mm512_setzero_ps();
    __builtin_prefetch(c + i * stride, 1);
  }
  for (size_t k = 0; k < pairs; ++k) {
    __m512bh bv[kTileVecs];
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileVecs; ++j) {
      bv[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + k * kTileCols + j * kLanes));
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kRows; ++i) {
      const auto pair = static_cast<int>(a.data[i * a.row + k * a.pair]);
      const auto av = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 8
      for (size_t j = 0; j < kTileVecs; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], av, bv[j]);
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileVecs; ++j) {
      float* to = c + i * stride + j * kLanes;
      _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[i][j]) : sum[i][j]);
    }
  }
}

void MultiplyTiles(const MatmulArgs& args, const Block& block, size_t m_begin, size_t m_end,
                   size_t n_begin, size_t n_end) {
  constexpr decltype(&Tile<1>) kTiles[kTileRows] = {&Tile<1>, &Tile<2>, &Tile<3>,
                                                    &Tile<4>, &Tile<5>, &Tile<6>};
  const bool add = args.accumulate || block.k0 > 0;
  const size_t pairs = Pairs(block);
  const auto* panels = reinterpret_cast<const uint32_t*>(block.b);
  const auto* left = reinterpret_cast<const uint32_t*>(block.a);
  alignas(64) float partial[kTileRows * kTileCols];
  for (size_t n = n_begin; n < n_end; n += kTileCols) {
    const size_t cols = std::min(kTileCols, n_end - n);
    for (size_t m = m_begin; m < m_end; m += kTileRows) {
      const size_t rows = std::min(kTileRows, m_end - m);
      const Left a = args.transpose_a ? Left{left + m * pairs, 1, kTileRows}
                                      : Left{left + m * pairs, pairs, 1};
      float* c = args.c.Row(block.m0 + m) + n;
      if (cols == kTileCols) {
        kTiles[rows - 1](a, panels + n * pairs, pairs, add, c, args.c.stride);
        continue;
      }
      kTiles[rows - 1](a, panels + n * pairs, pairs, false, partial, kTileCols);
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < cols; ++j) {
          const float sum = partial[i * kTileCols + j];
          c[i * args.c.stride + j] = add ? c[i * args.c.stride + j] + sum : sum;
        }
      }
    }
  }
}

}  // namespace

BlockPasses Avx512Bf16Passes() {
  return {.pack_a = PackA, .pack_b = PackB, .multiply = MultiplyTiles};
}

}  // namespace hognose::kernels::internal
HWY_POP_ATTRIBUTES

#else

namespace hognose::kernels::internal {
BlockPasses Avx512Bf16Passes() { return {}; }
}  // namespace hognose::kernels::internal

#endif
