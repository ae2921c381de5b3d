// linear over INT8 and INT4 weights on the tile products of AMX. Activations become 16-bit integers
// with one scale a row, as in linear_quantized.cc, in two planes of bytes: x = 256 hi + lo, hi
// signed, lo not. `Tiles` are the instructions, or what imitates them in tests. To be included
// between HWY_PUSH_ATTRIBUTES of AVX-512 and HWY_POP_ATTRIBUTES.
//
//   total [m, n] += (256 sum_k w[m, k] hi[k, n] + sum_k w[m, k] lo[k, n]) scale[m, g]
//
// for every group g of columns in order. The sums over k are exact: their size is below
// 128 * 128 * 2^15 = 2^29. A total is one chain of f32 operations, whatever is computed beside it:
// a row of y has the same bits for any L.
//
// Tiles, for each group: a left operand is the codes of 16 rows of w, a right one 16 rows of x. The
// integer sums leave the tiles through memory, as nothing else leads out of them; so the tiles are
// one group ahead of the vectors, which add what was stored before.
//
// Blocks: kChunk columns of two tiles of w, their codes as tiles read them, and of one block of x
// stay in the first-level cache; the block of x comes from the second-level cache once for the two
// tiles, the codes once for all blocks of x.
#pragma once

#include "kernels/linear/linear_amx_int_operands-inl.h"

namespace hognose::kernels::internal {

// Vector `i` of a tile's sums, of the products with hi and with lo, as floats.
inline __m512 AmxIntSum(const int32_t* sums, size_t i) {
  const __m512i hi = _mm512_load_si512(sums + i * 16);
  const __m512i lo = _mm512_load_si512(sums + AmxInt::kSums + i * 16);
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi, 8), lo));
}

// The totals of a block of 16 rows of x: one vector for each row of w, in registers.
class AmxWideTotals {
 public:
  __attribute__((always_inline)) AmxWideTotals(const AmxIntOperands&, float* totals)
      : memory_(totals) {
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) r_[i] = _mm512_load_ps(memory_ + i * 16);
  }
  __attribute__((always_inline)) void Add(const int32_t* sums, const float* scales) {
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      r_[i] = _mm512_fmadd_ps(AmxIntSum(sums, i), _mm512_set1_ps(scales[i]), r_[i]);
    }
  }
  __attribute__((always_inline)) void Store() const {
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) _mm512_store_ps(memory_ + i * 16, r_[i]);
  }

 private:
  float* memory_;
  __m512 r_[16];
};

// The totals of a narrow block, [rows of w, width] without gaps, in memory.
class AmxNarrowTotals {
 public:
  AmxNarrowTotals(const AmxIntOperands& o, float* totals) : o_(o), memory_(totals) {}
  void Add(const int32_t* sums, const float* scales) {
    const __m512 of_rows = _mm512_load_ps(scales);
    for (size_t i = 0; i < o_.width; ++i) {
      const __m512 scale = _mm512_permutexvar_ps(_mm512_load_si512(o_.row_of[i]), of_rows);
      float* total = memory_ + i * 16;
      _mm512_store_ps(total, _mm512_fmadd_ps(AmxIntSum(sums, i), scale, _mm512_load_ps(total)));
    }
  }
  void Store() const {}

 private:
  const AmxIntOperands& o_;
  float* memory_;
};

// The sums of group `g` of a chunk: of the products with hi, then of those with lo.
template <class Tiles, int kFirst>
__attribute__((always_inline)) inline void AmxIntGroup(const AmxIntOperands& o,
                                                       const AmxIntWeights& w, const uint8_t* x,
                                                       size_t g, int32_t* sums) {
  // Copies: every tile instruction may have changed memory.
  const size_t group = o.args.w.group, columns = o.columns, width = o.width;
  const size_t stride = 4 * width, plane = columns * width;
  Tiles::template Zero<kFirst>();
  Tiles::template Zero<kFirst + 1>();
  for (size_t k = g * group; k < (g + 1) * group; k += columns) {
    Tiles::template Load<4>(w.Left(k), w.stride);
    Tiles::template Load<6>(x + 2 * k * width, stride);
    Tiles::template DotBytes<kFirst, 4, 6>();
    Tiles::template Load<7>(x + 2 * k * width + plane, stride);
    Tiles::template DotBytesUnsigned<kFirst + 1, 4, 7>();
    if (w.ahead != nullptr && k % AmxInt::kColumns == 0) w.Prefetch(o, k);
  }
  Tiles::template Store<kFirst>(sums, stride);
  Tiles::template Store<kFirst + 1>(sums + AmxInt::kSums, stride);
}

// Adds the products of `groups` groups of columns of 16 rows of w and one block of x to totals.
template <class Tiles, class Totals>
void AmxIntTile(const AmxIntOperands& o, const AmxIntWeights& w, const uint8_t* x, size_t groups,
                float* memory) {
  alignas(64) int32_t even[2 * AmxInt::kSums], odd[2 * AmxInt::kSums];
  Totals totals(o, memory);
  AmxIntGroup<Tiles, 0>(o, w, x, 0, even);
  for (size_t g = 1; g < groups; g += 2) {
    AmxIntGroup<Tiles, 2>(o, w, x, g, odd);
    totals.Add(even, w.scales + (g - 1) * kAmxRows);
    if (g + 1 < groups) AmxIntGroup<Tiles, 0>(o, w, x, g + 1, even);
    totals.Add(odd, w.scales + g * kAmxRows);
  }
  if (groups % 2 != 0) totals.Add(even, w.scales + (groups - 1) * kAmxRows);
  totals.Store();
}

// What one or two tiles of rows of w need: their codes and scales in a chunk, and their totals.
struct AmxIntPanel {
  alignas(64) int8_t codes[AmxInt::kTilesOfW][kAmxRows * AmxInt::kChunk];
  alignas(64) float scales[AmxInt::kTilesOfW][kAmxRows * AmxInt::kGroups];
  alignas(64) float totals[AmxInt::kTilesOfW][AmxInt::kBlocks][AmxInt::kSums];

  // Columns [k, k + columns) of 16 rows of w from m on, as tile `j` of `tiles`.
  AmxIntWeights Prepare(const AmxIntOperands& o, size_t m, size_t k, size_t columns, size_t j,
                        size_t tiles) {
    const auto* row = static_cast<const uint8_t*>(o.args.w.values.data) + m * o.row_bytes;
    const uint8_t* w = row + (o.int4 ? k / 2 : k);
    AmxIntScales(o, m, k / o.args.w.group, columns / o.args.w.group, scales[j]);
    const uint8_t* ahead = w + tiles * kAmxRows * o.row_bytes;
    if (!o.int4 && o.blocks == 1) {
      return {reinterpret_cast<const int8_t*>(w), o.row_bytes, AmxInt::kColumns, scales[j], ahead};
    }
    // For many blocks INT8 is copied too: rows that are 2 KiB apart fall into few sets of a cache.
    AmxIntUnpack(o, w, columns, codes[j]);
    return {codes[j], AmxInt::kColumns, AmxInt::kColumns * kAmxRows, scales[j], ahead};
  }
};

// Rows [m, m + 16 tiles) of w times blocks [begin, end) of x. Where w ends before, the last tile
// begins earlier, and what was computed before is not stored again.
template <class Tiles>
void AmxIntPanelRows(const AmxIntOperands& o, AmxIntPanel& panel, size_t m, size_t tiles,
                     size_t begin, size_t end) {
  const auto start = [&](size_t j) { return std::min(m + j * kAmxRows, o.args.w.rows - kAmxRows); };
  for (size_t j = 0; j < tiles; ++j) {
    std::memset(panel.totals[j], 0, (end - begin) * sizeof(panel.totals[j][0]));
  }
  for (size_t k = 0; k < o.padded; k += AmxInt::kChunk) {
    const size_t columns = std::min(AmxInt::kChunk, o.padded - k);
    AmxIntWeights w[AmxInt::kTilesOfW];
    for (size_t j = 0; j < tiles; ++j) w[j] = panel.Prepare(o, start(j), k, columns, j, tiles);
    for (size_t block = begin; block < end; ++block) {
      for (size_t j = 0; j < tiles; ++j) {
        if (block != 0) w[j].ahead = nullptr;
        float* totals = panel.totals[j][block - begin];
        const size_t groups = columns / o.args.w.group;
        if (o.width == kAmxRows) {
          AmxIntTile<Tiles, AmxWideTotals>(o, w[j], o.Block(block, k), groups, totals);
        } else {
          AmxIntTile<Tiles, AmxNarrowTotals>(o, w[j], o.Block(block, k), groups, totals);
        }
      }
    }
  }
  for (size_t block = begin; block < end; ++block) {
    for (size_t j = 0; j < tiles; ++j) {
      AmxFinish(o.args, o.RowsOfX(block), panel.totals[j][block - begin], start(j),
                m + j * kAmxRows - start(j));
    }
  }
}

// Rows [m_begin, m_end) of w, of which there are at least 16 in all.
template <class Tiles>
void AmxIntRowsOfW(const AmxIntOperands& o, size_t m_begin, size_t m_end) {
  const Tiles tiles(o.width, o.columns);
  AmxIntPanel panel;
  // As many blocks as stay in the second-level cache.
  const size_t most =
      std::min(BlockX(kAmxRows, o.padded, sizeof(int16_t)) / kAmxRows, AmxInt::kBlocks);
  // Two tiles share what one block of x costs; where there's but one, w is all that costs.
  const size_t of_w = o.blocks > 1 ? AmxInt::kTilesOfW : 1;
  for (size_t block = 0; block < o.blocks; block += most) {
    for (size_t m = m_begin; m < m_end; m += of_w * kAmxRows) {
      const size_t left = (m_end - m + kAmxRows - 1) / kAmxRows;
      AmxIntPanelRows<Tiles>(o, panel, m, std::min(left, of_w), block,
                             std::min(block + most, o.blocks));
    }
  }
}

// y of at least 16 rows of w.
template <class Tiles>
void AmxIntProduct(core::Exec& exec, const LinearArgs& args) {
  const AmxIntOperands o(args);
  exec.pool.Run(o.blocks, [&](size_t block) { AmxIntPack(o, block); });
  constexpr size_t kStep = AmxInt::kTilesOfW * kAmxRows;
  const size_t rows = args.w.rows;
  const size_t step = std::max(TaskRows(o.row_bytes, 1) / kStep, size_t{1}) * kStep;
  exec.pool.Run((rows + step - 1) / step, [&](size_t task) {
    AmxIntRowsOfW<Tiles>(o, task * step, std::min(rows, (task + 1) * step));
  });
}

}  // namespace hognose::kernels::internal
