// matmul: c = a b or c += a b for many rows, with transposes: the products of training.
//
// Formula    c[m, n] (+)= sum_k a[m, k] b[k, n]; with `transpose_a` a[k, m], `transpose_b` b[n, k].
// Operands   a [M, K] ([K, M] with transpose_a) f32; b [K, N] ([N, K] with transpose_b) f32, or in
//            its place `w`, weights in any stored type (codecs/quantized.h), decoded on the way; c
//            [M, N] f32, no alias. Any M, K, N >= 1. With `round_bf16` the operands may be rounded
//            to bf16, and are where the processor multiplies those faster (AVX3_BF16; not with
//            transpose_b, nor for weights in other types). (linear has x w^T for any number of
//            rows, each with the same bits in all company; here many rows are faster.)
// Scratch    MatmulScratch floats: panels of b, and of a when it is transposed.
// Threads    blocks of c, fixed by the shape: an element is one sum over k in the same order for
//            any thread count, begun anew with every kMatmulDepth of k.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   |error| <= (min(K, kMatmulDepth) + K / kMatmulDepth + 2) eps sum_k |a b|, after the
//            operands' rounding if there is one.
// Cost       2 M K N operations.
// Source     K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
//            Oracle: MatmulRef, scalar, double accumulation.
#pragma once

#include "codecs/quantized.h"
#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

// k that is summed in registers at once; the panels of b for it stay in a cache.
inline constexpr size_t kMatmulDepth = 256;

struct MatmulArgs {
  core::Mat<const float> a = {};
  bool transpose_a = false;
  core::Mat<const float> b = {};
  const codecs::WeightMatrix* w = nullptr;  // in place of b
  bool transpose_b = false;
  core::Mat<float> c = {};
  bool accumulate = false;
  bool round_bf16 = false;
  core::Vec<float> scratch = {};
};

// Floats of MatmulArgs::scratch for c [M, N].
size_t MatmulScratch(size_t m, size_t n);

void Matmul(core::Exec& exec, const MatmulArgs& args) noexcept;

void MatmulRef(const MatmulArgs& args);

}  // namespace hognose::kernels
