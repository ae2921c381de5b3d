// round_f16: every value of a matrix as the nearest F16, kept as f32: what a product in half
// precision would read.
//
// Formula    y[l, i] = f32(f16(x[l, i])): to nearest, ties to even; beyond 65,504 infinity
// Operands   x, y [L, n] f32; y may be x (same pointer and stride).
// Scratch    none. Threads: rows. Errors: none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   exact; where denormals are flushed, values that are denormal in F16 (below 2^-14) may
//            become 0 or stay.
// Oracle     codecs/float16.h.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

struct RoundF16Args {
  core::Mat<const float> x = {};
  core::Mat<float> y = {};
};

void RoundF16(core::Exec& exec, const RoundF16Args& args) noexcept;

}  // namespace hognose::kernels
