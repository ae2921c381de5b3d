// rms_norm: root-mean-square norm over groups of a row, with an optional gate before or after it.
//
// Formula    u = x                     without a gate, and with Gate::kAfterNorm
//            u = x silu(z)             with Gate::kBeforeNorm (Mamba-2)
//            y = w u / sqrt(mean(u^2) + eps), the mean over each group of `group` columns;
//            y = y silu(z)             with Gate::kAfterNorm
//            Without norm (`normalize` false): y = x silu(z).
// Gradient   v = x, or x silu(z) with kBeforeNorm; h = dy, or dy silu(z) with kAfterNorm
//            rho = 1 / sqrt(mean(v^2) + eps);  g = w h
//            dv = rho (g - v rho^2 mean(v g));  dw = sum over rows of h v rho
//            dx = dv, or dv silu(z) with kBeforeNorm
//            dz = dv x silu'(z) with kBeforeNorm, dy w v rho silu'(z) with kAfterNorm
//            Without norm rho = 1 and dv = g. Nothing is saved: rho is computed again from x and z.
// Operands   x, z, y [L, n] f32, n a multiple of group; w [n] f32 or empty (all ones).
//            y may be x itself (same pointer and stride), never z. The gradient's dx, dz and y may
//            each be any of x, z, dy (same pointer and stride), but no two of them the same.
// Scratch    none; RmsNormGradScratch(L, n) floats where dw is wanted. Threads: rows, when many.
//            Same bits for any thread count and, but for dw, which sums rows, for any L. The
//            gradient's y has the bits of RmsNorm's.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   |error| <= (group / lanes + 16) eps |y|; of dv <= (group + 32) eps rho max |g|
//            max |v rho|, of dw <= (group + 32 + L) eps of the sum of magnitudes.
// Source     Zhang and Sennrich 2019; Mamba-2's RMSNormGated (math.md 1.2).
//            Oracles: RmsNormRef, RmsNormGradRef.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

enum class Gate { kNone, kBeforeNorm, kAfterNorm };

struct RmsNormArgs {
  core::Mat<const float> x = {};
  core::Mat<const float> z = {};  // only with a gate
  core::Vec<const float> w = {};
  core::Mat<float> y = {};
  size_t group = 0;
  float eps = 1e-5f;
  Gate gate = Gate::kNone;
  bool normalize = true;
};

void RmsNorm(core::Exec& exec, const RmsNormArgs& args) noexcept;

void RmsNormRef(const RmsNormArgs& args);

struct RmsNormGradArgs {
  core::Mat<const float> x = {};  // x, z, w as given to RmsNorm
  core::Mat<const float> z = {};
  core::Vec<const float> w = {};
  core::Mat<const float> dy = {};
  core::Mat<float> dx = {};  // written, or added to
  bool accumulate_dx = false;
  core::Mat<float> dz = {};  // written; only with a gate
  core::Vec<float> dw = {};  // added to; empty: not wanted
  core::Mat<float> y = {};   // the forward result once more; empty: not wanted
  size_t group = 0;
  float eps = 1e-5f;
  Gate gate = Gate::kNone;
  bool normalize = true;
  core::Vec<float> scratch = {};
};

// Floats of scratch for `rows` rows of `cols` columns; none are needed without dw.
size_t RmsNormGradScratch(size_t rows, size_t cols);

void RmsNormGrad(core::Exec& exec, const RmsNormGradArgs& args) noexcept;

// No alias of any two operands.
void RmsNormGradRef(const RmsNormGradArgs& args);

}  // namespace hognose::kernels
