// rms_norm: root-mean-square norm over groups of a row, with an optional gate before or after it.
//
// Formula    u = x                     without a gate, and with Gate::kAfterNorm
//            u = x silu(z)             with Gate::kBeforeNorm (Mamba-2)
//            y = w u / sqrt(mean(u^2) + eps), the mean over each group of `group` columns;
//            y = y silu(z)             with Gate::kAfterNorm
//            Without norm (`normalize` false): y = x silu(z).
// Operands   x, z, y [L, n] f32, n a multiple of group; w [n] f32 or empty (all ones).
//            y may be x itself (same pointer and stride), never z.
// Scratch    none. Threads: rows, when there are many. Same bits for any L and thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   |error| <= (group / lanes + 16) eps |y|.
// Source     Zhang and Sennrich 2019; Mamba-2's RMSNormGated (math.md 1.2). Oracle: RmsNormRef.
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

}  // namespace hognose::kernels
