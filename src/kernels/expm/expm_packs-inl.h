// Packs of matrices whose exponentials take the same Pade approximant, and what is done to each
// matrix of a pack by its own number of squarings.
// Included once per target, inside HWY_BEFORE_NAMESPACE; see Highway's foreach_target.

#if defined(HOGNOSE_KERNELS_EXPM_PACKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOGNOSE_KERNELS_EXPM_PACKS_INL_H_
#undef HOGNOSE_KERNELS_EXPM_PACKS_INL_H_
#else
#define HOGNOSE_KERNELS_EXPM_PACKS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "core/tensor.h"
#include "hwy/highway.h"
#include "kernels/expm/dense-inl.h"
#include "kernels/expm/dense_batch-inl.h"
#include "kernels/expm/expm_pade.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

template <typename T, bool kLanes>
struct PadePack {
  Pack<T, kLanes> pack;
  size_t order = 0;
  size_t squarings = 0;                          // the most that one of them takes
  T own_squarings[Pack<T, kLanes>::kMost] = {};  // of each lane
  T scale[Pack<T, kLanes>::kMost] = {};          // 2^-squarings of each lane
};

// max(||M^p||^(1/p), ||M^(p+1)||^(1/(p+1))) of the matrix M of magnitudes of a, p = kPadePower, or
// a tiny part of `norm`, that of a, where that is more: powers of a smaller one underflow. `spare`
// has room for 2n numbers.
template <typename T>
double NormOfPowers(const core::Mat<const T>& a, T norm, T* spare) {
  const size_t n = a.cols;
  const T reciprocal = T{1} / norm;
  T *sums = spare, *next = spare + n;
  std::fill_n(sums, n, T{1});
  double result = 0.0;
  // Column sums of (M / norm)^k: at most 1, so that nothing overflows.
  for (int k = 1; k <= kPadePower<T> + 1; ++k) {
    std::fill_n(next, n, T{0});
    for (size_t i = 0; i < n; ++i) {
      const T* row = a.Row(i);
      const T factor = sums[i] * reciprocal;
      for (size_t j = 0; j < n; ++j) next[j] += factor * std::abs(row[j]);
    }
    std::swap(sums, next);
    if (k < kPadePower<T>) continue;
    const T largest = *std::max_element(sums, sums + n);
    result = std::max(result, std::pow(static_cast<double>(largest), 1.0 / k));
  }
  return norm * std::max(result, sizeof(T) == sizeof(float) ? 0x1p-20 : 0x1p-150);
}

// The order by the norm; the squarings too, or by the powers where those are smaller: matrices that
// are badly scaled or nearly nilpotent lose digits with every squaring that they don't need. Powers
// of magnitudes, so that no digits are lost by cancellation in the powers themselves. For a
// derivative, powers say nothing of terms with e between them.
template <typename T>
PadePlan PlanFor(const core::Mat<const T>& a, T norm, bool derivative, T* spare) {
  PadePlan plan = PlanPade(norm, derivative);
  if (plan.squarings == 0 || derivative) return plan;
  plan.squarings =
      std::min(plan.squarings, PadeSquarings<T>(NormOfPowers(a, norm, spare), derivative));
  return plan;
}

// Calls body(pack) for all matrices [begin, end) of `a` (of their transposes), not_finite(i) in
// place of it for those without a finite norm. `spare` has room for 2n numbers.
template <typename T, bool kLanes, typename NotFinite, typename Body>
HWY_INLINE void ForPadePacks(const core::Mat<const T>& a, bool transpose, bool derivative,
                             size_t begin, size_t end, T* spare, const NotFinite& not_finite,
                             const Body& body) {
  struct Item {
    PadePlan plan;
    size_t index;
  };
  constexpr size_t kWindow = 64;
  Item items[kWindow];
  const size_t n = a.cols, members = kLanes ? hn::Lanes(DenseTag<T>()) : 1;
  for (; begin < end; begin += kWindow) {
    size_t count = 0;
    for (size_t i = begin; i < std::min(end, begin + kWindow); ++i) {
      const T norm = OneNorm(a.Rows(i * n, n), transpose);
      if (std::isnan(norm)) {
        not_finite(i);
      } else {
        items[count++] = {PlanFor(a.Rows(i * n, n), norm, derivative, spare), i};
      }
    }
    // So that the lanes of a pack have the same order and squarings alike.
    if (kLanes) {
      std::sort(items, items + count, [](const Item& x, const Item& y) {
        return std::tie(x.plan.order, x.plan.squarings, x.index) <
               std::tie(y.plan.order, y.plan.squarings, y.index);
      });
    }
    for (size_t k = 0; k < count;) {
      PadePack<T, kLanes> p;
      p.order = items[k].plan.order;
      for (; k < count && p.pack.count < members && items[k].plan.order == p.order; ++k) {
        const size_t m = p.pack.count++;
        const size_t squarings = items[k].plan.squarings;
        p.pack.index[m] = items[k].index;
        p.own_squarings[m] = static_cast<T>(squarings);
        p.scale[m] = std::ldexp(T{1}, -static_cast<int>(squarings));
        p.squarings = std::max(p.squarings, squarings);
      }
      for (size_t m = p.pack.count; m < members; ++m) {
        p.own_squarings[m] = p.own_squarings[0];
        p.scale[m] = p.scale[0];
      }
      body(p);
    }
  }
}

// After squaring number `step` from x to y: a matrix that has had all of its own keeps x.
template <typename T, bool kLanes>
HWY_INLINE void KeepFinished(const PadePack<T, kLanes>& p, size_t step, size_t size, const T* x,
                             T* y) {
  if constexpr (kLanes) {
    const DenseTag<T> d;
    const auto done = hn::Le(hn::LoadU(d, p.own_squarings), hn::Set(d, static_cast<T>(step)));
    if (hn::AllFalse(d, done)) return;
    for (size_t i = 0; i < size; i += hn::Lanes(d)) {
      hn::StoreU(hn::IfThenElse(done, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
    }
  }
}

// b[kFirst], b[kFirst + 2] and so on.
template <typename T, size_t kOrder, size_t kFirst, size_t kCount>
constexpr std::array<T, kCount> PadeTerms() {
  std::array<T, kCount> terms = {};
  for (size_t i = 0; i < kCount; ++i) terms[i] = static_cast<T>(kPade<kOrder>[kFirst + 2 * i]);
  return terms;
}

// u = v + u and v = v - u.
template <typename T>
HWY_INLINE void SumAndDifference(size_t size, T* u, T* v) {
  const DenseTag<T> d;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, u + i), y = hn::LoadU(d, v + i);
    hn::StoreU(hn::Add(y, x), d, u + i);
    hn::StoreU(hn::Sub(y, x), d, v + i);
  }
}

template <typename T>
void FillWithNan(const core::Mat<T>& batch, size_t n, size_t i) {
  for (size_t r = i * n; r < (i + 1) * n; ++r) {
    std::fill_n(batch.Row(r), n, std::numeric_limits<T>::quiet_NaN());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#endif
