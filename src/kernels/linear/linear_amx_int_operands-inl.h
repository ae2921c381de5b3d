// The operands of linear_amx_int-inl.h: activations as two planes of bytes, and codes and scales of
// w as tiles read them. To be included between HWY_PUSH_ATTRIBUTES of AVX-512 and
// HWY_POP_ATTRIBUTES.
#pragma once

#include "kernels/linear/linear_amx-inl.h"

namespace hognose::kernels::internal {

struct AmxInt {
  static constexpr size_t kColumns = 64;  // unpacked together; the most a left operand has
  static constexpr size_t kChunk = 512;
  static constexpr size_t kGroups = kChunk / codecs::kMinGroup;  // in a chunk, at most
  static constexpr size_t kTilesOfW = 2;
  static constexpr size_t kBlocks = 32;  // of x that share unpacked codes
  static constexpr size_t kNarrow = 8;   // rows of x whose sums are stored without gaps
  static constexpr size_t kSums = kAmxRows * kAmxRows;
};

// The packed activations: blocks of `width` rows of x. A block is, for each left operand's columns,
// two right operands: [columns / 4, width, 4] of hi, then of lo.
struct AmxIntOperands {
  const LinearArgs& args;
  bool int4;
  size_t row_bytes;  // of w
  size_t padded;     // K as stored
  size_t columns;    // of a left operand
  size_t width;
  size_t blocks;
  uint8_t* packed;
  float* scales;                                    // one for each row of x
  alignas(64) int32_t row_of[AmxInt::kNarrow][16];  // row of w, by lane of a narrow block's sums

  explicit AmxIntOperands(const LinearArgs& a)
      : args(a),
        int4(a.w.encoding == codecs::Encoding::kInt4),
        row_bytes(codecs::RowBytes(a.w.encoding, a.w.cols, a.w.group)),
        padded(codecs::PaddedColumns(a.w.cols, a.w.group)),
        columns(std::min(a.w.group, AmxInt::kColumns)),
        width(EvenTile(a.x.rows, kAmxRows)) {
    // Tiles of fewer columns aren't faster, but full ones need no shuffles of scales.
    if (width > AmxInt::kNarrow) width = kAmxRows;
    blocks = (a.x.rows + width - 1) / width;
    packed = a.scratch.data + (64 - reinterpret_cast<uintptr_t>(a.scratch.data) % 64) % 64;
    scales = reinterpret_cast<float*>(packed + blocks * width * padded * 2);
    HOGNOSE_DCHECK(reinterpret_cast<uint8_t*>(scales + a.x.rows) <=
                   a.scratch.data + a.scratch.size);
    for (size_t i = 0; i < AmxInt::kNarrow * 16; ++i) {
      row_of[i / 16][i % 16] = static_cast<int32_t>(std::min(i / width, kAmxRows - 1));
    }
  }
  // Columns from k on.
  uint8_t* Block(size_t block, size_t k) const { return packed + (block * padded + k) * width * 2; }
  AmxRowsOfX RowsOfX(size_t block) const { return {block * width, width, scales + block * width}; }
};

inline float LargestMagnitude(const float* x, size_t size) {
  __m512 largest = _mm512_setzero_ps();
  for (size_t k = 0; k < size; k += 16) {
    largest = _mm512_max_ps(largest, _mm512_abs_ps(LoadFloats(x + k, size - k)));
  }
  return _mm512_reduce_max_ps(largest);
}

// Columns [k, k + 16) of a row of x as 16-bit integers; zero behind its end.
inline __m256i EncodeColumns16(const float* x, size_t size, size_t k, __m512 inverse) {
  if (k >= size) return _mm256_setzero_si256();
  const __m512 scaled = _mm512_mul_ps(LoadFloats(x + k, size - k), inverse);
  return _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(scaled));
}
inline __m512i Join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Columns [k, k + 64) of a row of x as bytes.
inline void EncodeColumns(const float* x, size_t size, size_t k, float inverse, __m512* hi,
                          __m512* lo) {
  const __m512 inverses = _mm512_set1_ps(inverse);
  const __m512i a =
      Join(EncodeColumns16(x, size, k, inverses), EncodeColumns16(x, size, k + 16, inverses));
  const __m512i b =
      Join(EncodeColumns16(x, size, k + 32, inverses), EncodeColumns16(x, size, k + 48, inverses));
  *hi = _mm512_castsi512_ps(Join(_mm512_cvtepi16_epi8(_mm512_srai_epi16(a, 8)),
                                 _mm512_cvtepi16_epi8(_mm512_srai_epi16(b, 8))));
  *lo = _mm512_castsi512_ps(Join(_mm512_cvtepi16_epi8(a), _mm512_cvtepi16_epi8(b)));
}

// Plane `plane` of 64 columns of a block, which begin at `out`; r[i] is row i of x.
inline void AmxIntStorePlane(const AmxIntOperands& o, size_t plane, __m512 (&r)[16], uint8_t* out) {
  const size_t depth = o.columns / 4, row_bytes = 4 * o.width;  // of a right operand
  if (o.width == 1) {
    // The columns of a single row stand as they should.
    for (size_t i = 0; i < 16; i += depth) {
      const auto lanes = static_cast<__mmask16>(FirstLanes(depth) << i);
      _mm512_mask_storeu_ps(out + (i + plane * depth) * row_bytes, lanes, r[0]);
    }
    return;
  }
  Transpose16(r);
  for (size_t i = 0; i < 16; ++i) {
    const size_t row = (i / depth * 2 + plane) * depth + i % depth;
    _mm512_mask_storeu_ps(out + row * row_bytes, FirstLanes(o.width), r[i]);
  }
}

// Block `block` of the activations, and its scales. Rows behind the last one are zero.
inline void AmxIntPack(const AmxIntOperands& o, size_t block) {
  const core::Mat<const float>& x = o.args.x;
  const size_t begin = block * o.width, rows = std::min(o.width, x.rows - begin);
  float inverse[kAmxRows];
  for (size_t i = 0; i < rows; ++i) {
    const float largest = LargestMagnitude(x.Row(begin + i), x.cols);
    inverse[i] = largest > 0.0f ? 32767.0f / largest : 0.0f;
    o.scales[begin + i] = largest / 32767.0f;
  }
  for (size_t k = 0; k < o.padded; k += AmxInt::kColumns) {
    __m512 hi[16], lo[16];
    for (size_t i = 0; i < 16; ++i) {
      hi[i] = lo[i] = _mm512_setzero_ps();
      if (i < rows) EncodeColumns(x.Row(begin + i), x.cols, k, inverse[i], &hi[i], &lo[i]);
    }
    AmxIntStorePlane(o, 0, hi, o.Block(block, k));
    AmxIntStorePlane(o, 1, lo, o.Block(block, k));
  }
}

// Some columns of 16 rows of w, as left operands.
struct AmxIntWeights {
  const int8_t* codes = nullptr;   // columns [0, 64) of the first row
  size_t stride = 0;               // from row to row
  size_t step = 0;                 // from 64 columns to the next
  const float* scales = nullptr;   // [groups, 16]
  const uint8_t* ahead = nullptr;  // these columns of a row of w that comes later, or none

  const int8_t* Left(size_t k) const {
    return codes + k / AmxInt::kColumns * step + k % AmxInt::kColumns;
  }
  // Asks for 64 columns of 16 later rows. A line has 128 columns of INT4: half of the rows, then
  // the others. Always inline: see PrefetchAhead.
  __attribute__((always_inline)) void Prefetch(const AmxIntOperands& o, size_t k) const {
    const size_t count = o.int4 ? kAmxRows / 2 : kAmxRows;
    const uint8_t* line = ahead + (o.int4 ? k / 128 * 64 : k);
    if (o.int4 && k % 128 != 0) line += count * o.row_bytes;
    for (size_t i = 0; i < count; ++i) __builtin_prefetch(line + i * o.row_bytes, 0, 2);
  }
};

// The codes of 16 rows of w that begin at `w`, `columns` of them, as [columns / 64, 16, 64].
inline void AmxIntUnpack(const AmxIntOperands& o, const uint8_t* w, size_t columns, int8_t* out) {
  // Of the 16-byte halves a and b of 64 columns of INT4: a low, a high, b low, b high.
  const __m512i halves = _mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0);
  const __m512i shifts = _mm512_set_epi32(4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0);
  for (size_t k = 0; k < columns; k += AmxInt::kColumns) {
    for (size_t i = 0; i < kAmxRows; ++i, out += AmxInt::kColumns) {
      const uint8_t* row = w + i * o.row_bytes;
      if (!o.int4) {
        _mm512_store_si512(out, _mm512_loadu_si512(row + k));
        continue;
      }
      const __m512i bytes =
          _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + k / 2)));
      const __m512i shifted = _mm512_srlv_epi32(_mm512_permutexvar_epi64(halves, bytes), shifts);
      const __m512i codes = _mm512_and_si512(shifted, _mm512_set1_epi8(15));
      _mm512_store_si512(out, _mm512_sub_epi8(codes, _mm512_set1_epi8(8)));
    }
  }
}

// The scales of `count` <= 16 groups from g on of rows m to m + 15 of w, as [groups, 16].
inline void AmxIntScales(const AmxIntOperands& o, size_t m, size_t g, size_t count, float* out) {
  const size_t groups = o.padded / o.args.w.group;
  const auto* scales = o.args.w.scales.As<core::BFloat16>() + m * groups + g;
  __m512 r[16];
  for (size_t i = 0; i < 16; ++i) {
    const __m256i bf16 = _mm256_maskz_loadu_epi16(FirstLanes(count), scales + i * groups);
    r[i] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
  }
  Transpose16(r);
  for (size_t i = 0; i < 16; ++i) _mm512_store_ps(out + i * 16, r[i]);
}

}  // namespace hognose::kernels::internal
