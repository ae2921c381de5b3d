// Matrices of a batch on their way into a working layout of dense-inl.h and back.
// Included once per target, inside HWY_BEFORE_NAMESPACE; see Highway's foreach_target.

#if defined(HOGNOSE_KERNELS_EXPM_DENSE_BATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_EXPM_DENSE_BATCH_INL_H_
#undef HOGNOSE_KERNELS_EXPM_DENSE_BATCH_INL_H_
#else
#define HOGNOSE_KERNELS_EXPM_DENSE_BATCH_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/tensor.h"
#include "hwy/highway.h"
#include "kernels/expm/dense-inl.h"
#include "kernels/expm/expm.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// Whether a batch is computed with a matrix a lane: as `asked`, or as the shape says.
template <typename T>
HWY_INLINE bool InLanes(ExpmLayout asked, size_t n, size_t batch) {
  const ExpmLayout layout =
      asked == ExpmLayout::kAuto ? ChooseExpmLayout(n, batch, hn::Lanes(DenseTag<T>())) : asked;
  return layout == ExpmLayout::kLanes;
}

// Which matrices of a batch are worked on together: as many as lanes, or one. Lanes without a
// matrix repeat the first; nothing of them is stored.
template <typename T, bool kLanes>
struct Pack {
  static constexpr size_t kMost = kLanes ? kDenseMaxLanes<T> : 1;
  size_t index[kMost] = {};
  size_t count = 0;

  size_t Member(size_t m) const { return index[m < count ? m : 0]; }
};

// Calls body(pack) for neighbouring matrices, all of [begin, end).
template <typename T, bool kLanes, typename Body>
HWY_INLINE void ForPacks(size_t begin, size_t end, const Body& body) {
  const size_t members = kLanes ? hn::Lanes(DenseTag<T>()) : 1;
  for (; begin < end; begin += members) {
    Pack<T, kLanes> pack;
    for (size_t i = begin; i < std::min(end, begin + members); ++i) pack.index[pack.count++] = i;
    body(pack);
  }
}

#if HWY_TARGET != HWY_SCALAR
// 16 bytes of numbers; the lanes of any vector are whole groups.
template <typename T>
using GroupTag = hn::FixedTag<T, 16 / sizeof(T)>;

// to[k][i] = from[i][k] for a group of groups.
HWY_INLINE void TransposeGroup(const double* const* from, double* const* to) {
  const GroupTag<double> d;
  const auto r0 = hn::LoadU(d, from[0]), r1 = hn::LoadU(d, from[1]);
  hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to[0]);
  hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to[1]);
}
HWY_INLINE void TransposeGroup(const float* const* from, float* const* to) {
  const GroupTag<float> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto r0 = hn::LoadU(d, from[0]), r1 = hn::LoadU(d, from[1]);
  const auto r2 = hn::LoadU(d, from[2]), r3 = hn::LoadU(d, from[3]);
  const auto l01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
  const auto l23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
  const auto u01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
  const auto u23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, l01, l23)), d, to[0]);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, l01, l23)), d, to[1]);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, u01, u23)), d, to[2]);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, u01, u23)), d, to[3]);
}
#endif

// to[c * step + m] = from[m][c] for c < count: a lane for each m.
template <typename T>
HWY_INLINE void Interleave(const T* const* from, size_t members, size_t count, size_t step, T* to) {
#if HWY_TARGET == HWY_SCALAR
  constexpr size_t kGroup = 1;
#else
  constexpr size_t kGroup = hn::MaxLanes(GroupTag<T>());
#endif
  for (size_t m = 0; m < members; m += kGroup) {
    size_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; c + kGroup <= count; c += kGroup) {
      const T* rows[kGroup];
      T* out[kGroup];
      for (size_t k = 0; k < kGroup; ++k) {
        rows[k] = from[m + k] + c;
        out[k] = to + (c + k) * step + m;
      }
      TransposeGroup(rows, out);
    }
#endif
    for (; c < count; ++c) {
      for (size_t k = m; k < m + kGroup; ++k) to[c * step + k] = from[k][c];
    }
  }
}

// Where a block of each matrix lies: its `rows` rows begin at row index * period + first.
struct BlockOf {
  size_t rows, cols;
  size_t period, first = 0;
};

// The block, or its transpose, into working rows of `stride` numbers.
template <typename T, bool kLanes>
void LoadBlock(const core::Mat<const T>& batch, const Pack<T, kLanes>& pack, const BlockOf& block,
               bool transpose, T* to, size_t stride) {
  const size_t step = DenseStep<T, kLanes>(), members = kLanes ? step : 1;
  const size_t row = transpose ? step : stride;
  const T* from[Pack<T, kLanes>::kMost] = {};
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t m = 0; m < members; ++m) {
      from[m] = batch.Row(pack.Member(m) * block.period + block.first + i);
    }
    if constexpr (kLanes) {
      Interleave(from, members, block.cols, transpose ? stride : step, to + i * row);
    } else if (transpose) {
      for (size_t c = 0; c < block.cols; ++c) to[c * stride + i] = from[0][c];
    } else {
      std::copy_n(from[0], block.cols, to + i * stride);
    }
  }
  if constexpr (!kLanes) {
    const size_t rows = transpose ? block.cols : block.rows;
    const size_t cols = transpose ? block.rows : block.cols;
    for (size_t i = 0; i < rows; ++i) {
      std::fill(to + i * stride + cols, to + (i + 1) * stride, T{0});
    }
  }
}

// to[m][c] = from[c * step + m] for c < count, of the first `members` lanes only.
template <typename T>
HWY_INLINE void Deinterleave(const T* from, size_t members, size_t count, size_t step,
                             T* const* to) {
  size_t m = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr size_t kGroup = hn::MaxLanes(GroupTag<T>());
  for (; m + kGroup <= members; m += kGroup) {
    size_t c = 0;
    for (; c + kGroup <= count; c += kGroup) {
      const T* rows[kGroup];
      T* out[kGroup];
      for (size_t k = 0; k < kGroup; ++k) {
        rows[k] = from + (c + k) * step + m;
        out[k] = to[m + k] + c;
      }
      TransposeGroup(rows, out);
    }
    for (; c < count; ++c) {
      for (size_t k = m; k < m + kGroup; ++k) to[k][c] = from[c * step + k];
    }
  }
#endif
  for (; m < members; ++m) {
    for (size_t c = 0; c < count; ++c) to[m][c] = from[c * step + m];
  }
}

// The first block.rows x block.cols of working rows back into the batch.
template <typename T, bool kLanes>
void StoreBlock(const T* from, size_t stride, const Pack<T, kLanes>& pack, const BlockOf& block,
                const core::Mat<T>& batch) {
  T* to[Pack<T, kLanes>::kMost] = {};
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t m = 0; m < pack.count; ++m) {
      to[m] = batch.Row(pack.index[m] * block.period + block.first + i);
    }
    if constexpr (kLanes) {
      Deinterleave(from + i * stride, pack.count, block.cols, DenseStep<T, kLanes>(), to);
    } else {
      std::copy_n(from + i * stride, block.cols, to[0]);
    }
  }
}

// The largest sum of magnitudes of a column (of a row, for the transpose); NaN when one is no
// number below half the largest, so that what scales it down to 1 is a normal number.
template <typename T>
T OneNorm(const core::Mat<const T>& a, bool transpose) {
  T norm = 0;
  bool finite = true;
  const auto take = [&](T sum) {
    finite = finite && sum <= std::numeric_limits<T>::max() / 2;
    norm = std::max(norm, sum);
  };
  if (transpose) {
    for (size_t i = 0; i < a.rows; ++i) {
      T sum = 0;
      for (size_t j = 0; j < a.cols; ++j) sum += std::abs(a.Row(i)[j]);
      take(sum);
    }
  } else {
    constexpr size_t kColumns = 64;
    for (size_t begin = 0; begin < a.cols; begin += kColumns) {
      T sums[kColumns] = {};
      const size_t count = std::min(kColumns, a.cols - begin);
      for (size_t i = 0; i < a.rows; ++i) {
        const T* row = a.Row(i) + begin;
        for (size_t j = 0; j < count; ++j) sums[j] += std::abs(row[j]);
      }
      for (size_t j = 0; j < count; ++j) take(sums[j]);
    }
  }
  return finite ? norm : std::numeric_limits<T>::quiet_NaN();
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
