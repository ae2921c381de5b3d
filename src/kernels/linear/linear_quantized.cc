// linear over INT8 and INT4 weights. Activations become 16-bit integers (one scale a row), products
// and the sums over a group are exact integers, and every group's sum is scaled in f32.
//
// Why 16 bits: PMADDWD multiplies them as fast as 8-bit ones are unpacked, they lose less than bf16
// does, and so no quality gate is needed. A sum of one group stays below 127 * 32767 * 128 < 2^30.
#include <algorithm>
#include <cmath>

#include "codecs/float16.h"
#include "kernels/linear/linear_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/linear_quantized.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/linear/quantized_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE float LargestMagnitude(const float* x, size_t size) {
  const DF d;
  VF largest = hn::Zero(d);
  ForVectors(size, [&](size_t k, size_t count)
                       HWY_ATTR { largest = hn::Max(largest, hn::Abs(LoadN(d, x + k, count))); });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Group g of a row of x as 16-bit integers; returns their sum.
template <size_t kCap>
HWY_INLINE int32_t EncodeGroup16(const LinearArgs& a, const float* x, float inverse, size_t g,
                                 int16_t* codes) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int16_t, DF> d16;
  const size_t lanes = hn::Lanes(typename Vectors<kCap>::D16());
  const size_t begin = std::min(g * a.w.group, a.x.cols);
  const size_t size = std::min(a.w.group, a.x.cols - begin);
  auto sum = hn::Zero(di);
  ForVectors(size, [&](size_t i, size_t count) HWY_ATTR {
    const size_t k = begin + i;
    const auto code = hn::NearestInt(hn::Mul(LoadN(d, x + k, count), hn::Set(d, inverse)));
    sum = hn::Add(sum, code);
    // A whole vector fits also at the end of a row: the columns behind it are padding, and zero.
    hn::StoreU(hn::DemoteTo(d16, code), d16, codes + Position(a.w.encoding, lanes, k));
  });
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

// Rows [begin, end) of x as 16-bit integers with a scale a row, and minus eight times the sum of
// each group (INT4 codes are stored plus eight).
template <size_t kCap>
void EncodeRows16(const LinearArgs& a, const QuantizedRows& q, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const float* x = a.x.Row(row);
    const float largest = LargestMagnitude(x, a.x.cols);
    const float inverse = largest > 0.0f ? 32767.0f / largest : 0.0f;
    std::fill_n(q.Codes(row), q.padded, int16_t{0});
    std::fill_n(q.Offset(row, 0), q.groups * QuantizedRows::kOffsetLanes, 0);
    for (size_t g = 0; g < q.groups; ++g) {
      *q.Offset(row, g) = -8 * EncodeGroup16<kCap>(a, x, inverse, g, q.Codes(row));
    }
    q.scales[row] = largest / 32767.0f;
  }
}

// Exact products in f32, for checks and scores: weights are decoded a block of columns at a time.
void ExactRows(const LinearArgs& a, size_t m_begin, size_t m_end) {
  const DF d;
  // Columns decoded at once, and rows of x that share them.
  constexpr size_t kBlock = 512, kRowsX = 32;
  HWY_ALIGN float w[kBlock];
  HWY_ALIGN float sums[kRowsX * hn::MaxLanes(d)];
  for (size_t m = m_begin; m < m_end; ++m) {
    for (size_t l0 = 0; l0 < a.x.rows; l0 += kRowsX) {
      const size_t rows = std::min(kRowsX, a.x.rows - l0);
      std::fill_n(sums, kRowsX * hn::MaxLanes(d), 0.0f);
      for (size_t k0 = 0; k0 < a.x.cols; k0 += kBlock) {
        const size_t count = std::min(kBlock, a.x.cols - k0);
        codecs::DecodeColumns(a.w, m, k0, {w, count});
        for (size_t l = 0; l < rows; ++l) {
          VF sum = hn::Load(d, sums + l * hn::Lanes(d));
          const float* x = a.x.Row(l0 + l) + k0;
          ForVectors(count, [&](size_t k, size_t n) HWY_ATTR {
            sum = hn::MulAdd(LoadN(d, w + k, n), LoadN(d, x + k, n), sum);
          });
          hn::Store(sum, d, sums + l * hn::Lanes(d));
        }
      }
      for (size_t l = 0; l < rows; ++l) {
        const float total = SumLanes(d, hn::Load(d, sums + l * hn::Lanes(d)));
        internal::Finish(a, l0 + l, m, 1, &total);
      }
    }
  }
}

// Rows of x in a tile: the integer and the f32 sums of kTileX * kTileW pairs live in registers.
constexpr size_t kTileX = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 3 : 2;

template <size_t kCap, Encoding kEncoding>
void DirectRows(const LinearArgs& a, const QuantizedRows& q, size_t m_begin, size_t m_end) {
  internal::ForTiles(a, 2, sizeof(int16_t), m_begin, m_end,
                     [&](size_t l, size_t rows_x, size_t m, size_t rows_w) HWY_ATTR {
                       const TileRows w(a, q, m, rows_w);
                       if (rows_x == 2) {
                         DirectTile<kCap, kEncoding, 2>(a, q, w, l, m, rows_w);
                       } else {
                         DirectTile<kCap, kEncoding, 1>(a, q, w, l, m, rows_w);
                       }
                     });
}

template <size_t kCap, Encoding kEncoding>
void UnpackedRows(const LinearArgs& a, const QuantizedRows& q, size_t m_begin, size_t m_end) {
  Unpacked w;
  size_t unpacked = m_end;  // the tile that w holds: none yet
  internal::ForTiles(a, kTileX, sizeof(int16_t), m_begin, m_end,
                     [&](size_t l, size_t rows_x, size_t m, size_t rows_w) HWY_ATTR {
                       if (m != unpacked) Unpack<kCap, kEncoding>(q, TileRows(a, q, m, rows_w), w);
                       unpacked = m;
                       if (rows_x == 1) {
                         UnpackedTile<kCap, kEncoding, 1>(a, q, w, l, m, rows_w);
                       } else if (rows_x == 2) {
                         UnpackedTile<kCap, kEncoding, 2>(a, q, w, l, m, rows_w);
                       } else {
                         UnpackedTile<kCap, kEncoding, kTileX>(a, q, w, l, m, rows_w);
                       }
                     });
}

template <size_t kCap, Encoding kEncoding>
void Rows(const LinearArgs& a, const QuantizedRows& q, size_t m_begin, size_t m_end) {
  if (internal::UnpackCodes(a.x.rows, q.padded)) {
    UnpackedRows<kCap, kEncoding>(a, q, m_begin, m_end);
  } else {
    DirectRows<kCap, kEncoding>(a, q, m_begin, m_end);
  }
}

// INT4 of small groups needs short vectors; everything else takes the longest.
bool ShortVectors(const LinearArgs& a) {
  return a.w.encoding == Encoding::kInt4 && a.w.group < codecs::kColumnBlock;
}

void EncodeActivations(const LinearArgs& a, const QuantizedRows& q, size_t begin, size_t end) {
  return ShortVectors(a) ? EncodeRows16<16>(a, q, begin, end)
                         : EncodeRows16<kLongest>(a, q, begin, end);
}

void QuantizedTask(const LinearArgs& a, const QuantizedRows& q, size_t m_begin, size_t m_end) {
  if (a.activations == Activations::kF32) return ExactRows(a, m_begin, m_end);
  if (a.w.encoding == Encoding::kInt8) return Rows<kLongest, Encoding::kInt8>(a, q, m_begin, m_end);
  if (ShortVectors(a)) return Rows<16, Encoding::kInt4>(a, q, m_begin, m_end);
  return Rows<kLongest, Encoding::kInt4>(a, q, m_begin, m_end);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels::internal {
namespace {

HWY_EXPORT(EncodeActivations);
HWY_EXPORT(QuantizedTask);

// Carves the activations out of the scratch.
QuantizedRows Carve(const LinearArgs& a) {
  QuantizedRows q;
  q.padded = codecs::PaddedColumns(a.w.cols, a.w.group);
  q.groups = q.padded / a.w.group;
  const auto address = reinterpret_cast<uintptr_t>(a.scratch.data);
  uint8_t* p = a.scratch.data + (64 - address % 64) % 64;
  q.codes = reinterpret_cast<int16_t*>(p);
  p += a.x.rows * q.padded * sizeof(int16_t);
  q.offsets = reinterpret_cast<int32_t*>(p);
  p += a.x.rows * q.groups * QuantizedRows::kOffsetLanes * sizeof(int32_t);
  q.scales = reinterpret_cast<float*>(p);
  HOGNOSE_DCHECK(reinterpret_cast<uint8_t*>(q.scales + a.x.rows) <=
                 a.scratch.data + a.scratch.size);
  return q;
}

}  // namespace

void LinearQuantized(core::Exec& exec, const LinearArgs& args) noexcept {
  const QuantizedRows q = args.activations == Activations::kInt16 ? Carve(args) : QuantizedRows();
  constexpr size_t kRowsPerTask = 4;
  if (args.activations == Activations::kInt16) {
    exec.pool.Run((args.x.rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
      HWY_DYNAMIC_DISPATCH(EncodeActivations)
      (args, q, task * kRowsPerTask, std::min(args.x.rows, (task + 1) * kRowsPerTask));
    });
  }
  const size_t rows = args.w.rows;
  const size_t step = TaskRows(codecs::RowBytes(args.w.encoding, args.w.cols, args.w.group), 1);
  exec.pool.Run((rows + step - 1) / step, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(QuantizedTask)(args, q, task * step, std::min(rows, (task + 1) * step));
  });
}

}  // namespace hognose::kernels::internal
#endif
