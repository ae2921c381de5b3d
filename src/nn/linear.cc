#include "nn/linear.h"

#include <utility>

#include "kernels/matmul/matmul.h"
#include "kernels/round_f16/round_f16.h"

namespace hognose::nn {
namespace {

void Product(Context& ctx, core::Mat<const float> x, const codecs::WeightMatrix& w,
             core::Mat<float> y, bool accumulate) {
  kernels::Linear(ctx.exec, {.x = x,
                             .w = w,
                             .y = y,
                             .accumulate = accumulate,
                             .activations = kernels::PickActivations(w, ctx.exact),
                             .scratch = ctx.x_scratch});
}

// What a product reads in place of m.
core::Mat<const float> Operand(GradContext& g, core::Mat<const float> m, core::Vec<float> room) {
  if (!g.half) return m;
  HOGNOSE_DCHECK(room.size >= m.rows * m.cols);
  const core::Mat<float> rounded{room.data, m.rows, m.cols, m.cols};
  kernels::RoundF16(g.ctx.exec, {m, rounded});
  return rounded;
}

core::Mat<float> Scaled(core::Mat<float> m, float scale) {
  for (size_t l = 0; l < m.rows; ++l) {
    for (size_t r = 0; r < m.cols; ++r) m.Row(l)[r] *= scale;
  }
  return m;
}

}  // namespace

core::Mat<float> Linear::Down(Context& ctx, core::Mat<const float> x) const {
  const core::Mat<float> down{ctx.adapters.data, x.rows, lora.rank(), lora.rank()};
  HOGNOSE_DCHECK(ctx.adapters.size >= down.rows * down.cols);
  Product(ctx, x, lora.a, down, /*accumulate=*/false);
  return Scaled(down, lora.scale);
}

core::Mat<float> Linear::DownGradient(GradContext& g, core::Mat<const float> dy) const {
  const core::Mat<float> down{g.adapters.data, dy.rows, lora.rank(), lora.rank()};
  kernels::Matmul(g.ctx.exec, {.a = dy, .w = &lora.b, .c = down, .scratch = g.products});
  return Scaled(down, lora.scale);
}

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
  if (lora.rank() != 0) Product(ctx, Down(ctx, x), lora.b, y, /*accumulate=*/true);
}

void Linear::Forward(GradContext& g, Group group, core::Mat<const float> x, core::Mat<float> y,
                     bool accumulate) const {
  x = Operand(g, x, g.half_left);
  // Integer weights meet 16-bit activations, exact to 1e-5 of the largest: much faster
  // than decoding, and nothing beside the rounding of the weights.
  const bool integers = w.encoding != codecs::Encoding::kPlain;
  if (integers || kernels::PickActivations(w, g.ctx.exact) != kernels::Activations::kF32) {
    const bool exact = std::exchange(g.ctx.exact, g.ctx.exact && !integers);
    Forward(g.ctx, group, x, y, accumulate);
    g.ctx.exact = exact;
    return;
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
  if (lora.rank() != 0) Product(g.ctx, Down(g.ctx, x), lora.b, y, /*accumulate=*/true);
}

size_t Linear::GradientScratch(size_t row_count) const {
  const size_t most = std::max({rows(), cols(), lora.rank()});
  return kernels::MatmulScratch(std::max(row_count, most), most);
}

void Linear::InputGradient(GradContext& g, core::Mat<const float> dy, core::Mat<float> dx,
                           bool accumulate) const {
  dy = Operand(g, dy, g.half_left);
  kernels::Matmul(g.ctx.exec, {.a = dy,
                               .w = &w,
                               .c = dx,
                               .accumulate = accumulate,
                               .round_bf16 = g.rounds_bf16(),
                               .scratch = g.products});
  if (lora.rank() == 0) return;
  kernels::Matmul(
      g.ctx.exec,
      {.a = DownGradient(g, dy), .w = &lora.a, .c = dx, .accumulate = true, .scratch = g.products});
}

void Linear::WeightGradient(GradContext& g, core::Mat<const float> x,
                            core::Mat<const float> dy) const {
  x = Operand(g, x, g.half_left);
  dy = Operand(g, dy, g.half_right);
  const auto add = [&](core::Mat<const float> left, core::Mat<const float> right,
                       core::Vec<float> to) {
    if (to.size == 0) return;
    kernels::Matmul(g.ctx.exec, {.a = left,
                                 .transpose_a = true,
                                 .b = right,
                                 .c = {to.data, left.cols, right.cols, right.cols},
                                 .accumulate = true,
                                 .round_bf16 = g.rounds_bf16(),
                                 .scratch = g.products});
  };
  add(dy, x, dw);
  if (lora.rank() != 0) {
    add(dy, Down(g.ctx, x), lora.db);
    add(DownGradient(g, dy), x, lora.da);
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
