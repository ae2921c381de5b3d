// ssd_scan: Mamba-2's recurrence (one decay a head), with discretisation and skip in the same pass.
//
// Formula    dt = clamp(softplus(dt_raw + dt_bias), dt_min, dt_max)
//            S_t[n, p] = exp(dt_t a) S_{t-1}[n, p] + b_t[n] dt_t x_t[p]          for each head
//            y_t[p] = sum_n c_t[n] S_t[n, p] + d_skip[p] x_t[p]
//            Head h reads b and c of group h / (H / G).
// Operands   x, y [L, H P]; b, c [L, G N]; dt [L, H]; dt_bias, a [H], a negative; d_skip [H P];
//            state [H N, P] (row h N + n), read and written. y aliases no input. f32.
//            Any L, N, P >= 1, H a multiple of G.
// Scratch    dt and decay of every step: [L, 2 H]. Threads: heads and blocks of P.
//            Same bits for any split of time and thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   a term that is s steps old has relative error (2 s + 8) eps.
// Cost       5 N P operations per (t, head).
// Source     Dao and Gu 2024; math.md 1.2. Oracle: SsdScanRef, double.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

struct SsdScanArgs {
  core::Mat<const float> x = {};
  core::Mat<const float> b = {};
  core::Mat<const float> c = {};
  core::Mat<const float> dt = {};
  core::Vec<const float> dt_bias = {};
  core::Vec<const float> a = {};
  core::Vec<const float> d_skip = {};
  float dt_min = 0.0f;
  float dt_max = 0.0f;  // infinity for no limit
  size_t groups = 1;
  core::Mat<float> state = {};
  core::Mat<float> y = {};
  core::Mat<float> scratch = {};
};

void SsdScan(core::Exec& exec, const SsdScanArgs& args) noexcept;

// The same by chunks of 64 steps and matrix products (N <= kMaxChunkedStates). Inside a chunk
// decays are exponentials of differences of sums, so its results agree with SsdScan's to rounding,
// and depend on where a piece begins; `chunk_scratch` has SsdScanChunkedScratch floats,
// args.scratch is not used. Accuracy: a term has relative error (16 + 2 chunks) eps + |its
// exponent| eps.
inline constexpr size_t kMaxChunkedStates = 256;
size_t SsdScanChunkedScratch(size_t steps, size_t heads, size_t groups, size_t states);
void SsdScanChunked(core::Exec& exec, const SsdScanArgs& args,
                    core::Vec<float> chunk_scratch) noexcept;

void SsdScanRef(const SsdScanArgs& args);

// The gradient of SsdScan, by chunks. Operands up to dt_max as they were given to it; `state` is
// the one before the first step, from which the states at the chunks' beginnings are computed
// again.
struct SsdScanGradArgs {
  core::Mat<const float> x = {};
  core::Mat<const float> b = {};
  core::Mat<const float> c = {};
  core::Mat<const float> dt = {};
  core::Vec<const float> dt_bias = {};
  core::Vec<const float> a = {};
  core::Vec<const float> d_skip = {};
  float dt_min = 0.0f;
  float dt_max = 0.0f;
  size_t groups = 1;
  core::Mat<const float> state = {};
  core::Mat<const float> dy = {};  // [L, H P]
  // [H N, P]: of the state after the last step; returns that of the one before the first.
  core::Mat<float> dstate = {};
  core::Mat<float> dx = {};        // [L, H P], written
  core::Mat<float> db = {};        // [L, G N], written
  core::Mat<float> dc = {};        // [L, G N], written
  core::Mat<float> ddt = {};       // [L, H], written: of the raw dt
  core::Vec<float> ddt_bias = {};  // [H], added to
  core::Vec<float> da = {};        // [H], added to: with respect to a, not to A_log
  core::Vec<float> dd_skip = {};   // [H P], added to
  core::Vec<float> scratch = {};   // SsdScanGradScratch floats
};

inline constexpr size_t kMaxGradWidth = 256;  // P, and N <= kMaxChunkedStates
size_t SsdScanGradScratch(size_t steps, size_t heads, size_t width, size_t groups, size_t states);
void SsdScanGrad(core::Exec& exec, const SsdScanGradArgs& args) noexcept;

void SsdScanGradRef(const SsdScanGradArgs& args);

}  // namespace hognose::kernels
