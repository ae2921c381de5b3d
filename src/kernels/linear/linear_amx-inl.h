// linear on the tile products of AMX: bf16 weights in place as the left operand, activations
// rounded to bf16 and packed once. `Tiles` are the instructions, or what imitates them in tests. To
// be included between HWY_PUSH_ATTRIBUTES of AVX-512 and HWY_POP_ATTRIBUTES.
//
//   C [16 of M, n of L] += A [16 of M, 32 of K] B [16 pairs of K, n of L x 2]
//
// A tile A is 16 rows of w as they lie in memory; B is x as pairs of neighbouring columns, with the
// n rows of x beside each other. So every sum runs over K in the same order, whatever else is
// computed with it: a row of y has the same bits for any L.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/linear/linear_tile.h"

namespace hognose::kernels::internal {

inline constexpr size_t kAmxK = 32;  // columns in a tile of kAmxRows rows of w

// The rows of x whose sums a tile holds.
struct AmxRowsOfX {
  size_t begin = 0;
  size_t width = 0;               // columns of the tile; those behind the last row mean nothing
  const float* scales = nullptr;  // one for each row, from `begin` on; none for bf16
};

// The packed activations: blocks of `width` rows of x, each [padded / 2, width, 2].
struct AmxOperands {
  const LinearArgs& args;
  core::BFloat16* packed = nullptr;
  size_t width = 0;
  size_t blocks = 0;
  size_t padded = 0;  // K rounded up to whole tiles

  explicit AmxOperands(const LinearArgs& a)
      : args(a),
        packed(reinterpret_cast<core::BFloat16*>(a.scratch.data)),
        width(EvenTile(a.x.rows, kAmxRows)),
        blocks((a.x.rows + width - 1) / width),
        padded((a.x.cols + kAmxK - 1) / kAmxK * kAmxK) {
    HOGNOSE_DCHECK(blocks * width * padded * sizeof(*packed) <= a.scratch.size);
  }
  core::BFloat16* Block(size_t block) const { return packed + block * width * padded; }
  AmxRowsOfX RowsOfX(size_t block) const { return {block * width, width}; }
};

// Pairs of neighbouring floats, from the low or the high half of each block of four.
inline __m512 UnpackPairsLow(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
inline __m512 UnpackPairsHigh(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// Rows and columns of 16 vectors of 16 change places.
inline void Transpose16(__m512 (&r)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (size_t i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 16; i += 4) {
    r[i] = UnpackPairsLow(t[i], t[i + 2]);
    r[i + 1] = UnpackPairsHigh(t[i], t[i + 2]);
    r[i + 2] = UnpackPairsLow(t[i + 1], t[i + 3]);
    r[i + 3] = UnpackPairsHigh(t[i + 1], t[i + 3]);
  }
  // Now r[4 i + j] holds, in its block b of four, rows 4 i to 4 i + 3 of column 4 b + j.
#pragma GCC unroll 4
  for (size_t j = 0; j < 4; ++j) {
    const __m512 lo01 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88);
    const __m512 hi01 = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xDD);
    const __m512 lo23 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88);
    const __m512 hi23 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xDD);
    t[j] = _mm512_shuffle_f32x4(lo01, lo23, 0x88);
    t[4 + j] = _mm512_shuffle_f32x4(hi01, hi23, 0x88);
    t[8 + j] = _mm512_shuffle_f32x4(lo01, lo23, 0xDD);
    t[12 + j] = _mm512_shuffle_f32x4(hi01, hi23, 0xDD);
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) r[i] = t[i];
}

inline __mmask16 FirstLanes(size_t count) {
  return static_cast<__mmask16>((uint32_t{1} << std::min(count, size_t{16})) - 1);
}

// Up to 16 floats from p on; what lies behind the first `count` is zero and is not read.
inline __m512 LoadFloats(const float* p, size_t count) {
  return _mm512_maskz_loadu_ps(FirstLanes(count), p);
}

// Block `block` of the activations. Rows behind the last one and columns behind K are zero.
inline void AmxPack(const AmxOperands& o, size_t block) {
  const size_t begin = block * o.width, k_size = o.args.x.cols;
  const size_t rows = std::min(o.width, o.args.x.rows - begin);
  core::BFloat16* out = o.Block(block);
  for (size_t k = 0; k < o.padded; k += kAmxK) {
    __m512 r[16];
    for (size_t i = 0; i < 16; ++i) {
      r[i] = _mm512_setzero_ps();
      if (i >= rows) continue;
      const float* x = o.args.x.Row(begin + i) + k;
      const size_t left = k_size - k;  // at least one
      const __m512 lo = LoadFloats(x, left);
      const __m512 hi = left > 16 ? LoadFloats(x + 16, left - 16) : _mm512_setzero_ps();
      r[i] = reinterpret_cast<__m512>(_mm512_cvtne2ps_pbh(hi, lo));
    }
    Transpose16(r);
    for (size_t i = 0; i < 16; ++i, out += 2 * o.width) {
      _mm512_mask_storeu_ps(out, FirstLanes(o.width), r[i]);
    }
  }
}

// The sums of one tile [rows of w, rows of x] into y: rows [first, 16) of w, which begin at m.
inline void AmxFinish(const LinearArgs& a, const AmxRowsOfX& x, const float* sums, size_t m,
                      size_t first) {
  __m512 r[16];
  for (size_t i = 0; i < 16; ++i) r[i] = LoadFloats(sums + i * x.width, x.width);
  Transpose16(r);
  const auto mask = static_cast<__mmask16>(0xFFFFu << first);
  const __m512 bias =
      a.bias.size != 0 ? _mm512_maskz_loadu_ps(mask, a.bias.data + m) : _mm512_setzero_ps();
  const size_t rows = std::min(x.width, a.x.rows - x.begin);
  for (size_t i = 0; i < rows; ++i) {
    float* y = a.y.Row(x.begin + i) + m;
    __m512 sum = r[i];
    if (x.scales != nullptr) sum = _mm512_mul_ps(sum, _mm512_set1_ps(x.scales[i]));
    if (a.bias.size != 0) sum = _mm512_add_ps(sum, bias);
    if (a.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
    _mm512_mask_storeu_ps(y, mask, sum);
  }
}

// 16 rows of w as left operands. The last columns, where they fill no tile, are copied.
struct AmxWeights {
  const core::BFloat16* w = nullptr;  // row m
  size_t cols = 0;
  size_t whole = 0;  // columns in whole tiles
  alignas(64) core::BFloat16 rest[kAmxRows * kAmxK];

  AmxWeights(const LinearArgs& a, size_t m)
      : w(a.w.values.As<core::BFloat16>() + m * a.x.cols),
        cols(a.x.cols),
        whole(a.x.cols / kAmxK * kAmxK) {
    if (whole == cols) return;
    std::memset(static_cast<void*>(rest), 0, sizeof(rest));
    for (size_t i = 0; i < kAmxRows; ++i) {
      std::copy(w + i * cols + whole, w + (i + 1) * cols, rest + i * kAmxK);
    }
  }
  template <class Tiles, int kTile>
  void Load(size_t k) const {
    if (k < whole) {
      Tiles::template Load<kTile>(w + k, cols * sizeof(*w));
    } else {
      Tiles::template Load<kTile>(rest, kAmxK * sizeof(*w));
    }
  }
  // Asks for the next rows of w.
  void Prefetch(size_t k) const {
    for (size_t i = 0; i < kAmxRows; ++i) {
      __builtin_prefetch(w + (kAmxRows + i) * cols + k, 0, 2);
    }
  }
};

// 16 rows of w from m on, of which those from `first` on are wanted, times one or two blocks of x.
template <class Tiles>
void AmxTile(const AmxOperands& o, const AmxWeights& w, size_t m, size_t first, size_t block,
             bool two) {
  const core::BFloat16* x0 = o.Block(block);
  const core::BFloat16* x1 = o.Block(block + two);
  const size_t x_step = o.width * kAmxK, x_stride = o.width * 2 * sizeof(*x0);
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  for (size_t k = 0; k < o.padded; k += kAmxK, x0 += x_step, x1 += x_step) {
    w.Load<Tiles, 4>(k);
    if (block == 0) w.Prefetch(k);
    Tiles::template Load<6>(x0, x_stride);
    Tiles::template Dot<0, 4, 6>();
    if (!two) continue;
    Tiles::template Load<7>(x1, x_stride);
    Tiles::template Dot<1, 4, 7>();
  }
  alignas(64) float sums[kAmxRows * kAmxRows];
  Tiles::template Store<0>(sums, o.width * sizeof(float));
  AmxFinish(o.args, o.RowsOfX(block), sums, m, first);
  if (!two) return;
  Tiles::template Store<1>(sums, o.width * sizeof(float));
  AmxFinish(o.args, o.RowsOfX(block + 1), sums, m, first);
}

// 32 rows of w from m on times two blocks of x: four products of four tiles.
template <class Tiles>
void AmxTile4(const AmxOperands& o, const AmxWeights& w0, const AmxWeights& w1, size_t m,
              size_t block) {
  const core::BFloat16* x0 = o.Block(block);
  const core::BFloat16* x1 = o.Block(block + 1);
  const size_t x_step = o.width * kAmxK, x_stride = o.width * 2 * sizeof(*x0);
  Tiles::template Zero<0>();
  Tiles::template Zero<1>();
  Tiles::template Zero<2>();
  Tiles::template Zero<3>();
  for (size_t k = 0; k < o.padded; k += kAmxK, x0 += x_step, x1 += x_step) {
    w0.Load<Tiles, 4>(k);
    Tiles::template Load<6>(x0, x_stride);
    Tiles::template Dot<0, 4, 6>();
    Tiles::template Load<7>(x1, x_stride);
    Tiles::template Dot<1, 4, 7>();
    w1.Load<Tiles, 5>(k);
    Tiles::template Dot<2, 5, 6>();
    Tiles::template Dot<3, 5, 7>();
  }
  alignas(64) float sums[4][kAmxRows * kAmxRows];
  const size_t stride = o.width * sizeof(float);
  Tiles::template Store<0>(sums[0], stride);
  Tiles::template Store<1>(sums[1], stride);
  Tiles::template Store<2>(sums[2], stride);
  Tiles::template Store<3>(sums[3], stride);
  for (size_t i = 0; i < 4; ++i) {
    AmxFinish(o.args, o.RowsOfX(block + i % 2), sums[i], m + i / 2 * kAmxRows, 0);
  }
}

// Rows [m_begin, m_end) of w, of which there are at least 16 in all. Where the last ones fill no
// tile, it begins earlier, and what was computed before is not stored again.
template <class Tiles>
void AmxRowsOfW(const AmxOperands& o, size_t m_begin, size_t m_end) {
  const Tiles tiles(o.width);
  const size_t all = o.args.w.rows;
  for (size_t m = m_begin; m < m_end;) {
    const size_t start = std::min(m, all - kAmxRows);
    const AmxWeights w0(o.args, start);
    const bool wide = o.blocks > 1 && m + 2 * kAmxRows <= m_end;
    if (!wide) {
      for (size_t block = 0; block < o.blocks; block += 2) {
        AmxTile<Tiles>(o, w0, start, m - start, block, block + 1 < o.blocks);
      }
      m = start + kAmxRows;
      continue;
    }
    const AmxWeights w1(o.args, m + kAmxRows);
    size_t block = 0;
    for (; block + 2 <= o.blocks; block += 2) AmxTile4<Tiles>(o, w0, w1, m, block);
    if (block < o.blocks) {
      AmxTile<Tiles>(o, w0, m, 0, block, false);
      AmxTile<Tiles>(o, w1, m + kAmxRows, 0, block, false);
    }
    m += 2 * kAmxRows;
  }
}

// y of at least 16 rows of w.
template <class Tiles>
void AmxProduct(core::Exec& exec, const LinearArgs& args) {
  const AmxOperands o(args);
  exec.pool.Run(o.blocks, [&](size_t block) { AmxPack(o, block); });
  constexpr size_t kStep = 2 * kAmxRows;
  const size_t rows = args.w.rows;
  const size_t step =
      std::max(TaskRows(args.x.cols, sizeof(core::BFloat16)) / kStep, size_t{1}) * kStep;
  exec.pool.Run((rows + step - 1) / step, [&](size_t task) {
    AmxRowsOfW<Tiles>(o, task * step, std::min(rows, (task + 1) * step));
  });
}

}  // namespace hognose::kernels::internal
