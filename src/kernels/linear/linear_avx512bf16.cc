// linear on VDPBF16PS: bf16 weights in place, activations rounded to bf16 once. Highway 1.0.3 has
// no such target, so these are our own functions with target attributes.
#include "kernels/avx512.h"
#include "kernels/linear/linear_tile.h"

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(HOGNOSE_AVX512_BF16)
namespace hognose::kernels::internal {
namespace {

constexpr size_t kTileX = 6;
constexpr size_t kLanes = 32;  // bf16 values in a vector

__m512bh LoadBf16(const core::BFloat16* p) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
}
__m512bh LoadBf16Tail(const core::BFloat16* p, size_t count) {
  const __mmask32 mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, p));
}

// The sums of the lanes of four vectors, as SumLanes4 in simd-inl.h.
__m128 Sum4(__m512 v0, __m512 v1, __m512 v2, __m512 v3) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v0, v1), _mm512_unpackhi_ps(v0, v1));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v2, v3), _mm512_unpackhi_ps(v2, v3));
  const __m512d lo = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512d hi = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
  const __m512 blocks = _mm512_add_ps(_mm512_castpd_ps(lo), _mm512_castpd_ps(hi));
  const __m256 half =
      _mm256_add_ps(_mm512_castps512_ps256(blocks), _mm512_extractf32x8_ps(blocks, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

struct Operands {
  const LinearArgs& args;
  const core::BFloat16* x;  // [L, stride]
  size_t stride;
  const core::BFloat16* w;  // [M, K]
};

// Finish with all four sums in one register.
void Finish4(const LinearArgs& a, size_t l, size_t m, size_t rows_w, __m128 sums) {
  if (rows_w < kTileW) {
    float lanes[kTileW];
    _mm_storeu_ps(lanes, sums);
    return Finish(a, l, m, rows_w, lanes);
  }
  float* y = a.y.Row(l) + m;
  if (a.bias.size != 0) sums = _mm_add_ps(sums, _mm_loadu_ps(a.bias.data + m));
  if (a.accumulate) sums = _mm_add_ps(_mm_loadu_ps(y), sums);
  _mm_storeu_ps(y, sums);
}

// kX rows of x times kTileW rows of w; rows of w from `rows_w` on repeat the last one.
template <size_t kX, From kFrom>
void Tile(const Operands& o, size_t l, size_t m, size_t rows_w) {
  const size_t k_size = o.args.x.cols;
  const core::BFloat16* w_row[kTileW];
#pragma GCC unroll 8
  for (size_t j = 0; j < kTileW; ++j) w_row[j] = o.w + (m + std::min(j, rows_w - 1)) * k_size;
  const core::BFloat16* x = o.x + l * o.stride;
  __m512 sum[kX][kTileW];
#pragma GCC unroll 8
  for (size_t i = 0; i < kX; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileW; ++j) sum[i][j] = _mm512_setzero_ps();
  }
  size_t k = 0;
  for (; k + kLanes <= k_size; k += kLanes) {
    __m512bh wv[kTileW];
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileW; ++j) {
      wv[j] = LoadBf16(w_row[j] + k);
      if (kFrom == From::kMemory) {
        PrefetchAhead(w_row[0], sizeof(*w_row[0]) * (kTileW * k + j * kLanes));
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kX; ++i) {
      const __m512bh xv = LoadBf16(x + i * o.stride + k);
#pragma GCC unroll 8
      for (size_t j = 0; j < kTileW; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], xv, wv[j]);
    }
  }
  if (k < k_size) {
    __m512bh wv[kTileW];
#pragma GCC unroll 8
    for (size_t j = 0; j < kTileW; ++j) wv[j] = LoadBf16Tail(w_row[j] + k, k_size - k);
#pragma GCC unroll 8
    for (size_t i = 0; i < kX; ++i) {
      const __m512bh xv = LoadBf16Tail(x + i * o.stride + k, k_size - k);
#pragma GCC unroll 8
      for (size_t j = 0; j < kTileW; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], xv, wv[j]);
    }
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kX; ++i) {
    Finish4(o.args, l + i, m, rows_w, Sum4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
  }
}

template <From kFrom>
void TileRows(const Operands& o, size_t l, size_t rows_x, size_t m, size_t rows_w) {
  constexpr decltype(&Tile<1, kFrom>) kTiles[kTileX] = {&Tile<1, kFrom>, &Tile<2, kFrom>,
                                                        &Tile<3, kFrom>, &Tile<4, kFrom>,
                                                        &Tile<5, kFrom>, &Tile<6, kFrom>};
  kTiles[rows_x - 1](o, l, m, rows_w);
}

void EncodeRow(const float* x, size_t size, core::BFloat16* out) {
  for (size_t k = 0; k < size; k += 16) {
    const size_t count = std::min(size - k, size_t{16});
    const auto mask = static_cast<__mmask16>((1u << count) - 1);
    const __m256bh y = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + k));
    _mm256_mask_storeu_epi16(out + k, mask, reinterpret_cast<__m256i>(y));
  }
}

}  // namespace

void LinearAvx512Bf16(core::Exec& exec, const LinearArgs& args) noexcept {
  const size_t k = args.x.cols;
  auto* x = reinterpret_cast<core::BFloat16*>(args.scratch.data);
  const Operands o{args, x, (k + kLanes - 1) / kLanes * kLanes, args.w.values.As<core::BFloat16>()};
  HOGNOSE_DCHECK(args.scratch.size >= LinearScratch(args.x.rows, k));
  constexpr size_t kRowsPerTask = 16;
  exec.pool.Run((args.x.rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    const size_t end = std::min(args.x.rows, (task + 1) * kRowsPerTask);
    for (size_t l = task * kRowsPerTask; l < end; ++l) {
      EncodeRow(args.x.Row(l), k, x + l * o.stride);
    }
  });
  const size_t rows = args.w.rows;
  const size_t step = TaskRows(k, sizeof(core::BFloat16));
  exec.pool.Run((rows + step - 1) / step, [&](size_t task) {
    ForTiles(args, kTileX, sizeof(core::BFloat16), task * step, std::min(rows, (task + 1) * step),
             [&](size_t l, size_t rows_x, size_t m, size_t rows_w) {
               if (l == 0) return TileRows<From::kMemory>(o, l, rows_x, m, rows_w);
               TileRows<From::kCache>(o, l, rows_x, m, rows_w);
             });
  });
}

}  // namespace hognose::kernels::internal
HWY_POP_ATTRIBUTES

#else

namespace hognose::kernels::internal {
void LinearAvx512Bf16(core::Exec&, const LinearArgs&) noexcept { HOGNOSE_CHECK(false); }
}  // namespace hognose::kernels::internal

#endif
