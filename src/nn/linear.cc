#include "nn/linear.h"

#include "kernels/matmul/matmul.h"

namespace hognose::nn {

void Linear::Forward(Context& ctx, Group group, core::Mat<const float> x, core::Mat<float> y,
                     bool accumulate) const {
  const Timed timed(ctx.profile, group,
                    {.weight_bytes = static_cast<double>(w.bytes()),
                     .operations = 2.0 * static_cast<double>(x.rows * w.rows * w.cols)});
  kernels::Linear(ctx.exec, {.x = x,
                             .w = w,
                             .bias = bias,
                             .y = y,
                             .accumulate = accumulate,
                             .activations = kernels::PickActivations(w, ctx.exact),
                             .scratch = ctx.x_scratch});
}

void Linear::Forward(GradContext& g, Group group, core::Mat<const float> x, core::Mat<float> y,
                     bool accumulate) const {
  if (kernels::PickActivations(w, g.ctx.exact) != kernels::Activations::kF32) {
    return Forward(g.ctx, group, x, y, accumulate);
  }
  if (bias.size != 0) {
    for (size_t l = 0; l < y.rows; ++l) {
      for (size_t m = 0; m < y.cols; ++m) {
        y.Row(l)[m] = accumulate ? y.Row(l)[m] + bias.data[m] : bias.data[m];
      }
    }
  }
  kernels::Matmul(g.ctx.exec, {.a = x,
                               .w = &w,
                               .transpose_b = true,
                               .c = y,
                               .accumulate = accumulate || bias.size != 0,
                               .scratch = g.products});
}

size_t Linear::GradientScratch(size_t row_count) const {
  return std::max(kernels::MatmulScratch(std::max(row_count, rows()), cols()),
                  kernels::MatmulScratch(row_count, rows()));
}

void Linear::InputGradient(GradContext& g, core::Mat<const float> dy, core::Mat<float> dx,
                           bool accumulate) const {
  kernels::Matmul(g.ctx.exec,
                  {.a = dy, .w = &w, .c = dx, .accumulate = accumulate, .scratch = g.products});
}

void Linear::WeightGradient(GradContext& g, core::Mat<const float> x,
                            core::Mat<const float> dy) const {
  if (dw.size != 0) {
    kernels::Matmul(g.ctx.exec, {.a = dy,
                                 .transpose_a = true,
                                 .b = x,
                                 .c = {dw.data, rows(), cols(), cols()},
                                 .accumulate = true,
                                 .scratch = g.products});
  }
  if (dbias.size != 0) {
    kernels::Matmul(g.ctx.exec, {.a = {g.ones.data, 1, dy.rows, dy.rows},
                                 .b = dy,
                                 .c = {dbias.data, 1, rows(), rows()},
                                 .accumulate = true,
                                 .scratch = g.products});
  }
}

}  // namespace hognose::nn
