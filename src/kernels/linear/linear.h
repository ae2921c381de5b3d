// linear: y = x w^T + bias, or y += x w^T + bias.
//
// Formula    y[l, m] (+)= sum_k x[l, k] w[m, k] + bias[m]
// Operands   x [L, K] f32; w [M, K] f32, bf16, f16, INT8 or INT4 (codecs/quantized.h), row-major,
//            contiguous, used in place and converted in registers; bias [M] f32 or empty; y [L, M]
//            f32. y aliases nothing. Any L, K, M >= 1.
// Rounding   Activations::kF32: products and sums in f32. kBF16: x is rounded to bf16 first and
//            products are summed in f32 (VDPBF16PS or AMX; needs bf16 weights and such a target).
//            kInt16: x becomes 16-bit integers with one scale a row, the products of a group are
//            summed exactly, groups in f32 (needs INT8 or INT4 weights; any target).
// Scratch    `scratch`: LinearScratch bytes for kBF16 and kInt16, else unused.
// Threads    tasks are blocks of rows of w. A row of y has the same bits for any L, any split of x
//            over calls, and any thread count: every element is one sum over k in the same order,
//            whatever tile it falls into.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   |error| <= 2 (K / lanes + log2(lanes) + 1) eps sum_k |x w| in f32, and on AMX
//            2 (K + 1) eps sum_k |x w|; kBF16 adds 2^-8 sum_k |x w|.
// Cost       few rows: bytes of w; many rows: 2 L K M operations.
// Oracle     LinearRef, scalar, double accumulation.
#pragma once

#include <cstddef>

#include "codecs/quantized.h"
#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

enum class Activations { kF32, kBF16, kInt16 };

struct LinearArgs {
  core::Mat<const float> x = {};
  codecs::WeightMatrix w = {};
  core::Vec<const float> bias = {};
  core::Mat<float> y = {};
  bool accumulate = false;
  Activations activations = Activations::kF32;
  core::Vec<uint8_t> scratch = {};
};

// How the activations of a product with such weights are held on the target in use; `exact` asks
// for f32.
Activations PickActivations(const codecs::WeightMatrix& w, bool exact);

// Bytes of LinearArgs::scratch for `rows` rows of `cols`, whatever the weights.
size_t LinearScratch(size_t rows, size_t cols);

void Linear(core::Exec& exec, const LinearArgs& args) noexcept;

void LinearRef(const LinearArgs& args);

}  // namespace hognose::kernels
