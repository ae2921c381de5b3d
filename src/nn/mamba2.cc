#include "nn/mamba2.h"

#include <algorithm>

#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/ssd_scan/ssd_scan.h"

namespace hognose::nn {

StateShape Mamba2Mixer::state_shape() const {
  return {.taps = w_.conv_w.rows,
          .channels = w_.conv_w.cols,
          .heads = o_.heads,
          .states = o_.states,
          .width = o_.head_dim};
}

Mamba2Mixer::Buffers Mamba2Mixer::Carve(core::Arena& arena, size_t rows) const {
  return {arena.NewMat<float>(rows, w_.in_proj.rows()), arena.NewMat<float>(rows, w_.conv_w.cols),
          arena.NewMat<float>(rows, 2 * o_.heads),
          arena.NewMat<float>(rows, o_.heads * o_.head_dim)};
}

void Mamba2Mixer::Convolve(core::Exec& exec, const Buffers& buf, const Segment& s) const {
  const size_t inner = o_.heads * o_.head_dim;
  kernels::CausalConv1d(exec, {.x = buf.zxbcdt.Cols(inner, w_.conv_w.cols).Rows(s.begin, s.count),
                               .w = w_.conv_w,
                               .bias = w_.conv_bias,
                               .window = s.state->conv,
                               .y = buf.xbc.Rows(s.begin, s.count)});
}

void Mamba2Mixer::Scan(core::Exec& exec, const Buffers& buf, const Segment& s) const {
  const size_t inner = o_.heads * o_.head_dim, bc = o_.groups * o_.states;
  const core::Mat<float> xbc = buf.xbc.Rows(s.begin, s.count);
  const core::Mat<float> zxbcdt = buf.zxbcdt.Rows(s.begin, s.count);
  kernels::SsdScan(exec, {.x = xbc.Cols(0, inner),
                          .b = xbc.Cols(inner, bc),
                          .c = xbc.Cols(inner + bc, bc),
                          .dt = zxbcdt.Cols(2 * inner + 2 * bc, o_.heads),
                          .dt_bias = w_.dt_bias,
                          .a = w_.a,
                          .d_skip = w_.d_skip,
                          .dt_min = o_.dt_min,
                          .dt_max = o_.dt_max,
                          .groups = o_.groups,
                          .state = s.state->ssm,
                          .y = buf.y.Rows(s.begin, s.count),
                          .scratch = buf.dt.Rows(s.begin, s.count)});
}

kernels::RmsNormArgs Mamba2Mixer::NormArgs(const Buffers& buf, core::Mat<float> out) const {
  const size_t inner = o_.heads * o_.head_dim;
  return {.x = buf.y,
          .z = buf.zxbcdt.Cols(0, inner),
          .w = w_.norm_w,
          .y = out,
          .group = inner / o_.groups,
          .eps = o_.norm_eps,
          .gate = o_.gate,
          .normalize = o_.normalize};
}

void Mamba2Mixer::Forward(Context& ctx, core::Mat<const float> u, std::span<const Segment> segments,
                          core::Mat<float> h) const {
  ctx.scratch.Rewind();
  const Buffers buf = Carve(ctx.scratch, u.rows);
  w_.in_proj.Forward(ctx, Group::kInProj, u, buf.zxbcdt);
  ForSegments(ctx, Group::kConv, segments,
              [&](core::Exec& exec, const Segment& s) { Convolve(exec, buf, s); });
  ForSegments(ctx, Group::kScan, segments,
              [&](core::Exec& exec, const Segment& s) { Scan(exec, buf, s); });
  {
    const Timed timed(ctx.profile, Group::kNorm);
    kernels::RmsNorm(ctx.exec, NormArgs(buf, buf.y));
  }
  w_.out_proj.Forward(ctx, Group::kOutProj, buf.y, h, /*accumulate=*/true);
}

}  // namespace hognose::nn
