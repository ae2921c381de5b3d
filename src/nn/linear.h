// Linear: a weight matrix in its stored type with an optional bias, and the context of a forward
// pass.
#pragma once

#include <memory>

#include "core/arena.h"
#include "core/exec.h"
#include "core/tensor.h"
#include "kernels/linear/linear.h"
#include "nn/gradient.h"
#include "nn/profile.h"

namespace hognose::nn {

// What a forward pass hands down to its blocks.
struct Context {
  core::Exec exec;
  // Runs everything on the calling thread: for work inside a task. Safe from several threads at
  // once.
  std::shared_ptr<core::ThreadPool> serial = std::make_shared<core::ThreadPool>(1);
  bool exact = false;        // products in f32 only; otherwise activations may be rounded to bf16
  core::Arena scratch = {};  // blocks carve their buffers here; each block rewinds it first
  core::Vec<uint8_t> x_scratch = {};  // kernels::LinearScratch of the largest product
  core::Vec<float> adapters = {};     // rows times the largest rank of an adapter
  Profile* profile = nullptr;         // where the time goes, if anybody asks
};

// What a training pass hands down besides.
struct GradContext {
  Context ctx;
  core::Arena scratch = {};          // blocks carve their buffers here; each block rewinds it first
  core::Vec<float> products = {};    // kernels::MatmulScratch of the largest product
  core::Vec<const float> ones = {};  // as many as rows: sums over rows are products with it
  core::Vec<float> adapters = {};    // as Context's, for gradients
  // Products read their operands rounded to F16 (weights are so already): room for one on each
  // side.
  bool half = false;
  core::Vec<float> half_left = {}, half_right = {};

  // Whether products may read their operands rounded to BF16.
  bool rounds_bf16() const { return !ctx.exact && !half; }
};

// A low-rank addition to a matrix: w + scale b a. Source: E. Hu et al., "LoRA", 2021.
struct Lora {
  codecs::WeightMatrix a = {};  // [R, K]
  codecs::WeightMatrix b = {};  // [M, R]
  float scale = 1.0f;
  core::Vec<float> da = {};  // where gradients are added
  core::Vec<float> db = {};

  size_t rank() const { return a.rows; }
};

struct Linear {
  codecs::WeightMatrix w = {};       // [M, K]
  core::Vec<const float> bias = {};  // [M] or empty
  // Where a backward pass adds the gradients of w and bias; empty: not wanted.
  core::Vec<float> dw = {};     // [M K]
  core::Vec<float> dbias = {};  // [M]
  Lora lora = {};               // rank 0: none

  size_t rows() const { return w.rows; }
  size_t cols() const { return w.cols; }

  // y [L, M] = x [L, K] w^T + bias; with `accumulate` it is added to y.
  void Forward(Context& ctx, Group group, core::Mat<const float> x, core::Mat<float> y,
               bool accumulate = false) const;
  // The same for training: many rows, whose bits need not be those of other companies.
  void Forward(GradContext& g, Group group, core::Mat<const float> x, core::Mat<float> y,
               bool accumulate = false) const;
  // dx [L, K] = dy [L, M] w; with `accumulate` it is added to dx.
  void InputGradient(GradContext& g, core::Mat<const float> dy, core::Mat<float> dx,
                     bool accumulate = false) const;
  // Adds dy^T x to dw and the sum of dy's rows to dbias, as far as they are wanted.
  void WeightGradient(GradContext& g, core::Mat<const float> x, core::Mat<const float> dy) const;
  // Floats of GradContext::products, and of half_left and half_right, that all need for L rows.
  size_t GradientScratch(size_t row_count) const;

 private:
  // [L, R] = scale x a^T and scale dy b.
  core::Mat<float> Down(Context& ctx, core::Mat<const float> x) const;
  core::Mat<float> DownGradient(GradContext& g, core::Mat<const float> dy) const;
};

}  // namespace hognose::nn
