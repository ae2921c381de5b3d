// What the chunked forms of ssd_scan share on every target: the tables of a chunk, and a head's
// part of them. Included once per target, inside HWY_BEFORE_NAMESPACE.

#if defined(HOGNOSE_KERNELS_SSD_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_SSD_CHUNKS_INL_H_
#undef HOGNOSE_KERNELS_SSD_CHUNKS_INL_H_
#else
#define HOGNOSE_KERNELS_SSD_CHUNKS_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "hwy/highway.h"
#include "kernels/ssd_scan/ssd_chunks.h"
#include "kernels/state_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// dt and the sums of one chunk, all heads.
template <typename Args>
void FillSums(const Args& a, const internal::ChunkTables& tables, size_t chunk) {
  const DF d;
  const size_t begin = chunk * kChunk, end = std::min(begin + kChunk, a.x.rows);
  HWY_ALIGN float lane_dt[HWY_MAX_BYTES / sizeof(float)];
  double sum[HWY_MAX_BYTES / sizeof(float)];
  ForVectors(a.a.size, [&](size_t h, size_t count) HWY_ATTR {
    std::fill_n(sum, count, 0.0);
    for (size_t t = begin; t < end; ++t) {
      const VF raw = hn::Add(LoadN(d, a.dt.Row(t) + h, count), LoadN(d, a.dt_bias.data + h, count));
      const VF dt = hn::Min(hn::Max(Softplus(d, raw), hn::Set(d, a.dt_min)), hn::Set(d, a.dt_max));
      hn::Store(dt, d, lane_dt);
      for (size_t i = 0; i < count; ++i) {
        sum[i] += static_cast<double>(lane_dt[i]) * a.a.data[h + i];
        const auto high = static_cast<float>(sum[i]);
        tables.dt.Row(h + i)[t] = lane_dt[i];
        tables.sum.Row(h + i)[t] = high;
        tables.sum_lo.Row(h + i)[t] = static_cast<float>(sum[i] - high);
      }
    }
  });
}

// b (and c, for a backward pass) transposed, and the products of their rows, of one group in one
// chunk.
template <typename Args>
void FillProducts(const Args& a, const internal::ChunkTables& tables, size_t chunk, size_t group) {
  const size_t begin = chunk * kChunk, steps = std::min(kChunk, a.x.rows - begin);
  const size_t states = a.b.cols / a.groups, block = chunk * a.groups + group;
  const bool backward = tables.ct.rows != 0;
  const LeftSide b{a.b.Row(begin) + group * states, a.b.stride, 1};
  const LeftSide c{a.c.Row(begin) + group * states, a.c.stride, 1};
  const auto transpose = [&](const LeftSide& from, const core::Mat<float>& to) HWY_ATTR {
    float* rows = to.Row(block * states);
    for (size_t n = 0; n < states && steps < kChunk; ++n) {
      std::fill_n(rows + n * to.stride, kChunk, 0.0f);
    }
    TransposeInto(from.data, from.row, steps, states, rows, to.stride);
    return rows;
  };
  const float* right = transpose(b, tables.bt);
  if (backward) right = transpose(c, tables.ct);
  // Up to the tile that holds the diagonal, or from it on.
  SmallProduct(steps, steps, backward ? b : c, right, kChunk, tables.cb.Row(block * kChunk),
               tables.cb.stride, nullptr, [&](size_t i, size_t j) HWY_ATTR {
                 const bool near = backward ? j + kProductCols > i : j < i + kProductRows;
                 return std::pair(size_t{0}, near ? states : 0);
               });
}

// One head's view of one chunk. Behind the last step dt is 0, so that whole vectors may be used:
// such a step neither adds nor decays anything.
struct HeadChunk : ChunkSums {
  size_t begin;  // time
  HWY_ALIGN float dt[kChunk];

  HeadChunk(const internal::ChunkTables& tables, size_t head, size_t chunk, size_t all_steps)
      : begin(chunk * kChunk) {
    steps = std::min(kChunk, all_steps - begin);
    std::copy_n(tables.dt.Row(head) + begin, steps, dt);
    std::copy_n(tables.sum.Row(head) + begin, steps, sum);
    std::copy_n(tables.sum_lo.Row(head) + begin, steps, sum_lo);
    std::fill(dt + steps, dt + kChunk, 0.0f);
    FillBehind(sum[steps - 1], sum_lo[steps - 1]);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
