// scan: associative scans along time: linear recurrence, sum, product, maximum.
//
// Formula    h_{-1} = initial;  for t = 0 .. L-1 (L-1 .. 0 with `reverse`, all the rest alike):
//              kLinear    h_t = a_t h_{t-1} + x_t      without initial: 0
//              kSum       h_t = h_{t-1} + x_t          0
//              kProduct   h_t = h_{t-1} x_t            1
//              kMax       h_t = max(h_{t-1}, x_t)      -infinity
//            y_t = h_t, or h_{t-1} with `exclusive`;  last = the h of the last step.
// Operands   a, x, y [B, L, C], channels contiguous, any strides that don't overlap; a for kLinear
//            only. initial, last [B, C] or empty. f32. Any B, L, C, 0 too: without steps last is
//            initial. y may be x or a (same pointer and strides), last may be initial.
// Methods    kSequential  channels side by side in vectors, one step after the other; C = 1, 2, 4
//                         and 8 without gaps: several steps of one register at once.
//            kSegmented   the totals of all segments of time, the states between them, then every
//                         segment from its state: two passes over the operands.
//            kChunked     the same over chunks that stay in the second-level cache: a chunk waits
//                         for the state before it and is scanned at once. One pass over memory.
//            kBlelloch    pairs of steps, pairs of pairs, ... up a tree, then states down it.
//            kAuto        what PickScan says.
// Scratch    ScanScratch(shape, method) floats; none for kSequential. Threads: sequences and
//            channels; the other three also time. All pieces come from the shape alone: same bits
//            for any thread count. Methods differ from each other by rounding.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   of the sum of the magnitudes of the terms of h (kLinear: the same recurrence over |a|,
//            |x|, |initial|): a term of kLinear that is s steps old has an error of
//            (s + log2(L) / 2 + 6) eps at most, by any method; kSum has depth / 2 eps, the depth
//            of its additions being L + 1 at most (about L / lanes for one channel without gaps)
//            and 2 log2 L + 2 with kBlelloch; kProduct L / 2 eps. kMax is exact.
//            A NaN stays to the end of its channel. Infinities are IEEE's in the order of the
//            method: where the coefficients of a piece of time multiply to infinity, a state of 0
//            before it makes a NaN that steps one by one would not.
// Cost       one read of the operands, one write of y; kSegmented reads twice, and those that
//            split time do 1.4 to 3 times the arithmetic. docs/scans.md has the measured crossings.
// Source     Blelloch 1990, "Prefix sums and their applications"; Merrill and Garland 2016 for the
//            chain of chunks. Oracle: ScanRef, double.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

enum class ScanOp { kLinear, kSum, kProduct, kMax };
enum class ScanMethod { kAuto, kSequential, kChunked, kSegmented, kBlelloch };

// [B, L, C]: `sequences` times `steps` rows of `channels` contiguous elements.
template <typename T>
struct Series {
  T* data = nullptr;
  size_t sequences = 0;
  size_t steps = 0;
  size_t channels = 0;
  size_t sequence_stride = 0;  // in elements
  size_t step_stride = 0;

  // Without gaps.
  static Series Dense(T* data, size_t b, size_t l, size_t c) { return {data, b, l, c, l * c, c}; }
  T* At(size_t b, size_t t) const {
    HOGNOSE_DCHECK(b < sequences && t < steps);
    return data + b * sequence_stride + t * step_stride;
  }
  // Steps [begin, begin + count) of every sequence.
  Series Steps(size_t begin, size_t count) const {
    HOGNOSE_DCHECK(begin + count <= steps);
    return {data + begin * step_stride, sequences, count, channels, sequence_stride, step_stride};
  }
  // Step t of every sequence.
  core::Mat<T> Step(size_t t) const {
    HOGNOSE_DCHECK(t < steps);
    return {data + t * step_stride, sequences, channels, sequence_stride};
  }
  operator Series<const T>() const {  // NOLINT: widening to const
    return {data, sequences, steps, channels, sequence_stride, step_stride};
  }
};

struct ScanShape {
  ScanOp op = ScanOp::kSum;
  size_t sequences = 0;
  size_t steps = 0;
  size_t channels = 0;
};

struct ScanArgs {
  ScanOp op = ScanOp::kSum;
  bool exclusive = false;
  bool reverse = false;
  ScanMethod method = ScanMethod::kAuto;
  Series<const float> a = {};
  Series<const float> x = {};
  core::Mat<const float> initial = {};
  Series<float> y = {};
  core::Mat<float> last = {};
  core::Vec<float> scratch = {};
};

// The method that a cost model (pick_scan.cc) expects to be the fastest with two threads. It knows
// the shape only, so a result does not depend on the number of threads. Never kAuto.
ScanMethod PickScan(const ScanShape& shape) noexcept;

// The model itself: nanoseconds of a call.
double ScanCost(const ScanShape& shape, ScanMethod method, size_t threads) noexcept;

size_t ScanScratch(const ScanShape& shape, ScanMethod method) noexcept;

void Scan(core::Exec& exec, const ScanArgs& args) noexcept;

// Ignores method and scratch.
void ScanRef(const ScanArgs& args);

// ScanGrad: the gradient of a loss, given its gradients dy and dlast by what Scan returned.
//
// Formula    with g_t the gradient by h_t, in the opposite direction of the scan, from dlast on:
//              kLinear    g_t = dy_t + a_{t+1} g_{t+1}      dx_t = g_t   da_t = g_t h_{t-1}
//                         dinitial = a_0 g_0
//              kSum       the same with a = 1
//              kProduct   the same with a = x               dx_t = g_t h_{t-1}
//              kMax       the same with a_t = 0 where x_t set the maximum (was the first to reach
//                         it; the first NaN; without initial the first step), else 1;
//                         dx_t = g_t where x_t set it, else 0
//            With `exclusive`, where h_t is y_{t+1}, dy_{t+1} stands in place of dy_t. Nothing is
//            divided: zeros in a product are values as any others.
// Operands   a, x, initial as given to Scan, y as it came back (a, x, y only where the formula has
//            them, y also for da); dy [B, L, C]; dlast, dinitial [B, C] or empty: zero, not wanted.
//            dx is written; da [B, L, C] too, or not wanted when empty. da may be a, dinitial may
//            be dlast, dx may be dy unless Scan was exclusive or kMax (same pointer and strides).
// Scratch    ScanGradScratch(shape, method) floats, the shape that of Scan; as there. Threads:
//            as in Scan, and blocks of steps. Same bits for any thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   as the scan of g, eps / 2 more for each product; kMax as kSum.
// Cost       Scan of kLinear (kSum: of kSum); one pass more for da and for dx of kProduct, two for
//            kMax.
// Source     the adjoint of the recurrence. Oracle: ScanGradRef, double; itself held against
//            differences.
struct ScanGradArgs {
  ScanOp op = ScanOp::kSum;
  bool exclusive = false;
  bool reverse = false;
  ScanMethod method = ScanMethod::kAuto;
  Series<const float> a = {};
  Series<const float> x = {};
  core::Mat<const float> initial = {};
  Series<const float> y = {};
  Series<const float> dy = {};
  core::Mat<const float> dlast = {};
  Series<float> da = {};
  Series<float> dx = {};
  core::Mat<float> dinitial = {};
  core::Vec<float> scratch = {};
};

size_t ScanGradScratch(const ScanShape& shape, ScanMethod method) noexcept;

void ScanGrad(core::Exec& exec, const ScanGradArgs& args) noexcept;

// No alias of any two operands. Ignores method and scratch.
void ScanGradRef(const ScanGradArgs& args);

}  // namespace hognose::kernels
