// optimizer: one step of AdamW or of SGD over a flat array of parameters, and the sum of squares
// that clipping by the norm needs.
//
// Formula    s = gradient_scale g;  q = p (1 - lr weight_decay)
//            AdamW: m = b1 m + (1 - b1) s;  v = b2 v + (1 - b2) s^2
//                   p = q - lr m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps)
//            SGD:   buf = momentum buf + s, or s itself without momentum;  p = q - lr buf
//            SumOfSquares: sum x^2
// Operands   p, m, v, buf [n] f32, read and written; g, x [n] f32. No aliases. What is constant
//            over the array is computed from the f64 hyperparameters in f64 and rounded once.
// Scratch    none; SumOfSquaresScratch(n) doubles. Threads: blocks of the array, fixed by n. Same
//            bits for any thread count.
// Errors     none; sizes are checked by HOGNOSE_DCHECK. A value of g that is not finite makes its
//            parameter so; in x it makes the sum so, and nothing else does (the square of the
//            largest f32 is a small f64).
// Accuracy   m, buf: 3 eps of the magnitudes added; v: 5 eps; the change of p: 8 eps and what m's
//            error makes of it. SumOfSquares: squares are exact in f64; n 2^-53 of the sum.
// Source     Loshchilov and Hutter 2019 (decay apart from the gradient); momentum as
//            torch.optim.SGD. Oracles: AdamWRef, SgdRef, SumOfSquaresRef.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

struct AdamWArgs {
  core::Vec<float> p = {};
  core::Vec<float> m = {};  // zero before the first step
  core::Vec<float> v = {};  // zero before the first step
  core::Vec<const float> g = {};
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // the factor of clipping
  size_t step = 1;              // counted from 1
};

void AdamW(core::Exec& exec, const AdamWArgs& args) noexcept;

void AdamWRef(const AdamWArgs& args);

struct SgdArgs {
  core::Vec<float> p = {};
  core::Vec<float> buf = {};  // zero before the first step; empty when momentum is 0
  core::Vec<const float> g = {};
  double lr = 1e-3;
  double momentum = 0.0;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;
};

void Sgd(core::Exec& exec, const SgdArgs& args) noexcept;

void SgdRef(const SgdArgs& args);

// Doubles of scratch for an array of `size` elements.
size_t SumOfSquaresScratch(size_t size);

double SumOfSquares(core::Exec& exec, core::Vec<const float> x, core::Vec<double> scratch) noexcept;

double SumOfSquaresRef(core::Vec<const float> x);

}  // namespace hognose::kernels
