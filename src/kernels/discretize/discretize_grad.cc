#include <algorithm>
#include <cmath>

#include "kernels/discretize/block.h"
#include "kernels/discretize/discretize.h"
#include "kernels/expm/expm.h"
#include "kernels/expm/expm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/discretize/discretize_grad.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/expm/dense_batch-inl.h"
#include "kernels/expm/dense_lu-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_DISCRETIZE_GRAD_ONCE_
#define HOGNOSE_DISCRETIZE_GRAD_ONCE_
// The working matrices of one task: n x n ones, [n, m] and [m, n].
template <typename T>
struct BilinearGradWork {
  static constexpr size_t kSquares = 3;
  T *q, *s, *ds, *dbbar, *y, *b, *pivots;

  BilinearGradWork(T* scratch, size_t square, size_t inputs, size_t transposed) {
    q = DenseAligned(scratch);
    s = q + square;
    ds = s + square;
    dbbar = ds + square;
    y = dbbar + inputs;
    b = y + inputs;
    pivots = b + transposed;
  }
};
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// x into da, y into db.
template <typename T, bool kLanes>
void BilinearGradIn(const DiscretizeGradArgs<T>& args, size_t begin, size_t end, T* scratch) {
  const size_t n = args.a.cols, m = args.b.cols;
  const size_t stride = DenseStride<T, kLanes>(n), b_stride = DenseStride<T, kLanes>(m);
  const auto step = static_cast<ptrdiff_t>(DenseStep<T, kLanes>());
  const auto row = static_cast<ptrdiff_t>(stride), b_row = static_cast<ptrdiff_t>(b_stride);
  const BlockOf square = {.rows = n, .cols = n, .period = n};
  const BlockOf inputs = {.rows = n, .cols = m, .period = n};
  const BilinearGradWork<T> w(scratch, n * stride, n * b_stride, m * stride);
  ForPacks<T, kLanes>(begin, end, [&](const Pack<T, kLanes>& pack) HWY_ATTR {
    T dt[Pack<T, kLanes>::kMost], back[Pack<T, kLanes>::kMost];
    for (size_t i = 0; i < DenseStep<T, kLanes>(); ++i) {
      dt[i] = args.dt[pack.Member(i)];
      back[i] = -dt[i] / 2;
    }
    // s^T, by the transpose of I - h a.
    LoadBlock<T, kLanes>(args.a, pack, square, true, w.q, stride);
    Scale<T, kLanes>(n * stride, back, w.q, w.q);
    AddToDiagonal<T, kLanes>(n, T{1}, w.q);
    std::fill_n(w.s, n * stride, T{0});
    AddToDiagonal<T, kLanes>(n, T{1}, w.s);
    FactorLu<T, kLanes>(n, w.q, w.pivots);
    SolveLu<T, kLanes>(n, w.q, w.pivots, n, w.s);
    // ds = 2 dabar + dbbar (dt b)^T.
    LoadBlock<T, kLanes>(args.dabar, pack, square, false, w.ds, stride);
    LoadBlock<T, kLanes>(args.dbbar, pack, inputs, false, w.dbbar, b_stride);
    LoadBlock<T, kLanes>(args.b, pack, inputs, true, w.b, stride);
    Combine<T, 1>(n * stride, {w.ds}, {T{2}}, w.ds);
    Scale<T, kLanes>(m * stride, dt, w.b, w.b);
    DenseProduct<T, kLanes, Into::kAdd>(n, DenseVectors<T, kLanes>(n), {w.dbbar, b_row, step},
                                        {w.b, row}, m, w.ds, stride);
    Multiply<T, kLanes>(n, w.s, w.ds, w.q);
    Multiply<T, kLanes>(n, w.q, w.s, w.ds);
    DenseProduct<T, kLanes, Into::kSet>(n, DenseVectors<T, kLanes>(m), {w.s, row, step},
                                        {w.dbbar, b_row}, n, w.y, b_stride);
    StoreBlock<T, kLanes>(w.ds, stride, pack, square, args.da);
    StoreBlock<T, kLanes>(w.y, b_stride, pack, inputs, args.db);
  });
}

template <typename T>
HWY_INLINE void BilinearGradTask(const DiscretizeGradArgs<T>& args, size_t begin, size_t end,
                                 T* scratch) {
  if (InLanes<T>(ExpmLayout::kAuto, args.a.cols, args.dt.size)) {
    return BilinearGradIn<T, true>(args, begin, end, scratch);
  }
  BilinearGradIn<T, false>(args, begin, end, scratch);
}

void BilinearGradF32(const DiscretizeGradArgs<float>& args, size_t begin, size_t end,
                     float* scratch) {
  BilinearGradTask(args, begin, end, scratch);
}
void BilinearGradF64(const DiscretizeGradArgs<double>& args, size_t begin, size_t end,
                     double* scratch) {
  BilinearGradTask(args, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(BilinearGradF32);
HWY_EXPORT(BilinearGradF64);

template <typename T>
size_t BilinearGradScratch(size_t n, size_t m) {
  return DenseTaskScratch<T>(BilinearGradWork<T>::kSquares * DenseSize<T>(n, n) +
                             2 * DenseSize<T>(n, m) + m * (DenseSize<T>(n, n) / n) +
                             DensePivots<T>(n));
}

// Both gradients of a system are factor times what da and db hold; the sums with a and b make ddt.
template <typename T>
struct Finish {
  T a_factor, b_factor, a_share;

  // sum of x y, in f64, in eight sums that fit a vector.
  static double Dot(const T* x, const T* y, size_t size) {
    constexpr size_t kSums = 8;
    double sums[kSums] = {};
    size_t i = 0;
    for (; i + kSums <= size; i += kSums) {
      for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(x[i + k]) * y[i + k];
    }
    for (; i < size; ++i) sums[0] += static_cast<double>(x[i]) * y[i];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  }

  void System(const DiscretizeGradArgs<T>& args, size_t s) const {
    const size_t n = args.a.cols, m = args.b.cols;
    double of_a = 0.0, of_b = 0.0;
    for (size_t r = s * n; r < (s + 1) * n; ++r) {
      T *da = args.da.Row(r), *db = args.db.Row(r);
      of_a += Dot(da, args.a.Row(r), n);
      of_b += Dot(db, args.b.Row(r), m);
      for (size_t j = 0; j < n; ++j) da[j] *= a_factor;
      for (size_t j = 0; j < m; ++j) db[j] *= b_factor;
    }
    args.ddt[s] = static_cast<T>(a_share * of_a + of_b);
  }
};

// x and y of every system into da and db.
template <typename T>
void Bilinear(core::Exec& exec, const DiscretizeGradArgs<T>& args) {
  const size_t n = args.a.cols;
  const auto task = [&](size_t begin, size_t end, T* own) {
    if constexpr (sizeof(T) == sizeof(float)) {
      HWY_DYNAMIC_DISPATCH(BilinearGradF32)(args, begin, end, own);
    } else {
      HWY_DYNAMIC_DISPATCH(BilinearGradF64)(args, begin, end, own);
    }
  };
  ExpmTasks(n, args.dt.size).Run(exec, args.scratch, BilinearGradScratch<T>(n, args.b.cols), task);
}

template <typename T>
void ZeroOrderHold(core::Exec& exec, const DiscretizeGradArgs<T>& args) {
  const size_t n = args.a.cols, m = args.b.cols, batch = args.dt.size;
  const BlockSystems<T> blocks(n, m, batch, args.scratch.data);
  const core::Mat<T> matrix = blocks.First(), d = blocks.Second();
  RunSystems(exec, batch, (n + m) * (n + m), [&](size_t i) {
    blocks.Put(matrix, i, args.a, args.b, args.dt[i]);
    blocks.Put(d, i, args.dabar, args.dbbar, T{1});
  });
  ExpmGrad(exec,
           ExpmGradArgs<T>{.a = matrix, .dy = d, .da = d, .scratch = blocks.Rest(2, args.scratch)});
  RunSystems(exec, batch, (n + m) * (n + m),
             [&](size_t i) { blocks.Take(d, i, args.da, args.db); });
}

template <typename T>
void Euler(core::Exec& exec, const DiscretizeGradArgs<T>& args) {
  const size_t n = args.a.cols, m = args.b.cols;
  RunSystems(exec, args.dt.size, n * (n + m), [&](size_t s) {
    for (size_t r = s * n; r < (s + 1) * n; ++r) {
      std::copy_n(args.dabar.Row(r), n, args.da.Row(r));
      std::copy_n(args.dbbar.Row(r), m, args.db.Row(r));
    }
  });
}

template <typename T>
void Run(core::Exec& exec, const DiscretizeGradArgs<T>& args) {
  const size_t n = args.a.cols, m = args.b.cols, batch = args.dt.size;
  if (batch == 0) return;
  HOGNOSE_DCHECK(n > 0 && m > 0 && args.a.rows == batch * n && args.b.rows == batch * n);
  HOGNOSE_DCHECK(args.dabar.rows == batch * n && args.dbbar.rows == batch * n);
  HOGNOSE_DCHECK(args.da.rows == batch * n && args.da.cols == n && args.ddt.size == batch);
  HOGNOSE_DCHECK(args.db.rows == batch * n && args.db.cols == m);
  HOGNOSE_DCHECK(args.scratch.size >= DiscretizeGradScratch<T>(args.method, batch, n, m));
  switch (args.method) {
    case DiscretizeMethod::kZeroOrderHold:
      ZeroOrderHold(exec, args);
      break;
    case DiscretizeMethod::kBilinear:
      Bilinear(exec, args);
      break;
    case DiscretizeMethod::kEuler:
      Euler(exec, args);
      break;
  }
  const T share = args.method == DiscretizeMethod::kBilinear ? T{0.5} : T{1};
  RunSystems(exec, batch, n * (n + m), [&](size_t s) {
    const T dt = args.dt[s];
    Finish<T>{.a_factor = share * dt, .b_factor = dt, .a_share = share}.System(args, s);
  });
}

}  // namespace

template <typename T>
size_t DiscretizeGradScratch(DiscretizeMethod method, size_t batch, size_t n, size_t m) {
  switch (method) {
    case DiscretizeMethod::kZeroOrderHold:
      return 2 * BlockSystems<T>::Size(n, m, batch) + ExpmGradScratch<T>(n + m, batch);
    case DiscretizeMethod::kBilinear:
      return ExpmTasks(n, batch).count * BilinearGradScratch<T>(n, m);
    case DiscretizeMethod::kEuler:
      break;
  }
  return 0;
}
template size_t DiscretizeGradScratch<float>(DiscretizeMethod, size_t, size_t, size_t);
template size_t DiscretizeGradScratch<double>(DiscretizeMethod, size_t, size_t, size_t);

void DiscretizeGrad(core::Exec& exec, const DiscretizeGradArgs<float>& args) noexcept {
  Run(exec, args);
}
void DiscretizeGrad(core::Exec& exec, const DiscretizeGradArgs<double>& args) noexcept {
  Run(exec, args);
}

}  // namespace hognose::kernels
#endif
