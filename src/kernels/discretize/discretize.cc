#include "kernels/discretize/discretize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/discretize/block.h"
#include "kernels/expm/expm.h"
#include "kernels/expm/expm_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/discretize/discretize.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/expm/dense_batch-inl.h"
#include "kernels/expm/dense_lu-inl.h"

namespace hognose::kernels {
#ifndef HOGNOSE_DISCRETIZE_ONCE_
#define HOGNOSE_DISCRETIZE_ONCE_
// The working matrices of one task of the bilinear method: I - h a, I + h a, dt b.
template <typename T>
struct BilinearWork {
  T *q, *x, *b, *pivots;

  BilinearWork(T* scratch, size_t square, size_t inputs) {
    q = DenseAligned(scratch);
    x = q + square;
    b = x + square;
    pivots = b + inputs;
  }
};
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

template <typename T, bool kLanes>
void BilinearIn(const DiscretizeArgs<T>& args, size_t begin, size_t end, T* scratch) {
  const size_t n = args.a.cols, m = args.b.cols;
  const size_t stride = DenseStride<T, kLanes>(n), b_stride = DenseStride<T, kLanes>(m);
  const BlockOf square = {.rows = n, .cols = n, .period = n};
  const BlockOf inputs = {.rows = n, .cols = m, .period = n};
  const BilinearWork<T> w(scratch, n * stride, n * b_stride);
  ForPacks<T, kLanes>(begin, end, [&](const Pack<T, kLanes>& pack) HWY_ATTR {
    T step[Pack<T, kLanes>::kMost], half[Pack<T, kLanes>::kMost], back[Pack<T, kLanes>::kMost];
    for (size_t i = 0; i < DenseStep<T, kLanes>(); ++i) {
      step[i] = args.dt[pack.Member(i)];
      half[i] = step[i] / 2;
      back[i] = -half[i];
    }
    LoadBlock<T, kLanes>(args.a, pack, square, false, w.x, stride);
    LoadBlock<T, kLanes>(args.b, pack, inputs, false, w.b, b_stride);
    Scale<T, kLanes>(n * stride, back, w.x, w.q);
    Scale<T, kLanes>(n * stride, half, w.x, w.x);
    Scale<T, kLanes>(n * b_stride, step, w.b, w.b);
    AddToDiagonal<T, kLanes>(n, T{1}, w.q);
    AddToDiagonal<T, kLanes>(n, T{1}, w.x);
    FactorLu<T, kLanes>(n, w.q, w.pivots);
    SolveLu<T, kLanes>(n, w.q, w.pivots, n, w.x);
    SolveLu<T, kLanes>(n, w.q, w.pivots, m, w.b);
    StoreBlock<T, kLanes>(w.x, stride, pack, square, args.abar);
    StoreBlock<T, kLanes>(w.b, b_stride, pack, inputs, args.bbar);
  });
}

template <typename T>
HWY_INLINE void BilinearTask(const DiscretizeArgs<T>& args, size_t begin, size_t end, T* scratch) {
  if (InLanes<T>(ExpmLayout::kAuto, args.a.cols, args.dt.size)) {
    return BilinearIn<T, true>(args, begin, end, scratch);
  }
  BilinearIn<T, false>(args, begin, end, scratch);
}

void BilinearF32(const DiscretizeArgs<float>& args, size_t begin, size_t end, float* scratch) {
  BilinearTask(args, begin, end, scratch);
}
void BilinearF64(const DiscretizeArgs<double>& args, size_t begin, size_t end, double* scratch) {
  BilinearTask(args, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(BilinearF32);
HWY_EXPORT(BilinearF64);

template <typename T>
size_t BilinearScratch(size_t n, size_t m) {
  return DenseTaskScratch<T>(2 * DenseSize<T>(n, n) + DenseSize<T>(n, m) + DensePivots<T>(n));
}

template <typename T>
void Bilinear(core::Exec& exec, const DiscretizeArgs<T>& args) {
  const size_t n = args.a.cols;
  const auto task = [&](size_t begin, size_t end, T* own) {
    if constexpr (sizeof(T) == sizeof(float)) {
      HWY_DYNAMIC_DISPATCH(BilinearF32)(args, begin, end, own);
    } else {
      HWY_DYNAMIC_DISPATCH(BilinearF64)(args, begin, end, own);
    }
  };
  ExpmTasks(n, args.dt.size).Run(exec, args.scratch, BilinearScratch<T>(n, args.b.cols), task);
}

template <typename T>
void ZeroOrderHold(core::Exec& exec, const DiscretizeArgs<T>& args) {
  const size_t n = args.a.cols, m = args.b.cols, batch = args.dt.size;
  const BlockSystems<T> blocks(n, m, batch, args.scratch.data);
  const core::Mat<T> matrix = blocks.First();
  RunSystems(exec, batch, (n + m) * (n + m),
             [&](size_t i) { blocks.Put(matrix, i, args.a, args.b, args.dt[i]); });
  Expm(exec, ExpmArgs<T>{.a = matrix, .y = matrix, .scratch = blocks.Rest(1, args.scratch)});
  RunSystems(exec, batch, (n + m) * (n + m),
             [&](size_t i) { blocks.Take(matrix, i, args.abar, args.bbar); });
}

template <typename T>
void Euler(core::Exec& exec, const DiscretizeArgs<T>& args) {
  const size_t n = args.a.cols, m = args.b.cols;
  RunSystems(exec, args.dt.size, n * (n + m), [&](size_t s) {
    const T dt = args.dt[s];
    for (size_t i = 0; i < n; ++i) {
      const T *a = args.a.Row(s * n + i), *b = args.b.Row(s * n + i);
      T *abar = args.abar.Row(s * n + i), *bbar = args.bbar.Row(s * n + i);
      for (size_t j = 0; j < n; ++j) abar[j] = dt * a[j];
      abar[i] += 1;
      for (size_t j = 0; j < m; ++j) bbar[j] = dt * b[j];
    }
  });
}

template <typename T>
void Run(core::Exec& exec, const DiscretizeArgs<T>& args) {
  const size_t n = args.a.cols, m = args.b.cols, batch = args.dt.size;
  if (batch == 0) return;
  HOGNOSE_DCHECK(n > 0 && m > 0 && args.a.rows == batch * n && args.b.rows == batch * n);
  HOGNOSE_DCHECK(args.abar.rows == batch * n && args.abar.cols == n);
  HOGNOSE_DCHECK(args.bbar.rows == batch * n && args.bbar.cols == m);
  HOGNOSE_DCHECK(args.scratch.size >= DiscretizeScratch<T>(args.method, batch, n, m));
  switch (args.method) {
    case DiscretizeMethod::kZeroOrderHold:
      return ZeroOrderHold(exec, args);
    case DiscretizeMethod::kBilinear:
      return Bilinear(exec, args);
    case DiscretizeMethod::kEuler:
      return Euler(exec, args);
  }
}

}  // namespace

template <typename T>
size_t DiscretizeScratch(DiscretizeMethod method, size_t batch, size_t n, size_t m) {
  switch (method) {
    case DiscretizeMethod::kZeroOrderHold:
      return BlockSystems<T>::Size(n, m, batch) + ExpmScratch<T>(n + m, batch);
    case DiscretizeMethod::kBilinear:
      return ExpmTasks(n, batch).count * BilinearScratch<T>(n, m);
    case DiscretizeMethod::kEuler:
      break;
  }
  return 0;
}
template size_t DiscretizeScratch<float>(DiscretizeMethod, size_t, size_t, size_t);
template size_t DiscretizeScratch<double>(DiscretizeMethod, size_t, size_t, size_t);

void Discretize(core::Exec& exec, const DiscretizeArgs<float>& args) noexcept { Run(exec, args); }
void Discretize(core::Exec& exec, const DiscretizeArgs<double>& args) noexcept { Run(exec, args); }

}  // namespace hognose::kernels
#endif
