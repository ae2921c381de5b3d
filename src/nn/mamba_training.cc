// Mamba-1's training passes. Kept for the backward pass: what the projections gave and the
// convolution's and the scan's results; the states are computed again.
#include <algorithm>

#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/selective_scan/selective_scan.h"
#include "nn/mamba.h"
#include "nn/small_gradients.h"

namespace hognose::nn {

struct MambaMixer::TrainBuffers {
  core::Mat<float> dy;      // [L, E]: of the gated result
  core::Mat<float> dxz;     // [L, 2 E]
  core::Mat<float> dx;      // [L, E]: of the convolution's result
  core::Mat<float> ddt_bc;  // [L, R + 2 N]
  core::Mat<float> ddt;     // [L, E]
  LayerState state;         // of the segment at hand
  LayerState dstate;
  core::Mat<float> dconv_w;  // [K, E]
  core::Mat<float> da;       // [N, E]
  core::Vec<float> scratch;  // of the kernels, one after the other
};

MambaMixer::Buffers MambaMixer::CarveKept(core::Arena& arena, size_t rows) const {
  Buffers buf = Carve(arena, rows);
  if (norm_dt_b_c_) buf.raw = arena.NewMat<float>(rows, w_.x_proj.rows());
  return buf;
}

MambaMixer::TrainBuffers MambaMixer::CarveTraining(core::Arena& arena, size_t rows) const {
  const size_t inner = w_.a.cols, states = w_.a.rows, taps = w_.conv_w.rows;
  const auto new_state = [&] {
    return LayerState{arena.NewMat<float>(taps, inner), arena.NewMat<float>(states, inner)};
  };
  const size_t scratch = std::max({kernels::SelectiveScanGradScratch(rows, inner, states),
                                   kernels::CausalConv1dGradScratch(taps, inner),
                                   kernels::RmsNormGradScratch(rows, w_.x_proj.rows())});
  return {.dy = arena.NewMat<float>(rows, inner),
          .dxz = arena.NewMat<float>(rows, 2 * inner),
          .dx = arena.NewMat<float>(rows, inner),
          .ddt_bc = arena.NewMat<float>(rows, w_.x_proj.rows()),
          .ddt = arena.NewMat<float>(rows, inner),
          .state = new_state(),
          .dstate = new_state(),
          .dconv_w = arena.NewMat<float>(taps, inner),
          .da = arena.NewMat<float>(states, inner),
          .scratch = arena.NewVec<float>(scratch)};
}

void MambaMixer::MeasureTraining(core::Arena& arena, size_t rows) const {
  CarveTraining(arena, rows);
}

void MambaMixer::ForwardKeeping(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                                std::span<const TrainSegment> segments, core::Mat<float> h) const {
  kept.Rewind();
  g.scratch.Rewind();
  const Buffers buf = CarveKept(kept, u.rows);
  const TrainBuffers work = CarveTraining(g.scratch, u.rows);
  w_.in_proj.Forward(g, Group::kInProj, u, buf.xz);
  LayerState state = work.state;
  for (const TrainSegment& s : segments) {
    LoadPart(s.initial, &LayerState::conv, state.conv);
    Convolve(g.ctx.exec, buf, {s.begin, s.count, &state});
    StorePart(state.conv, &LayerState::conv, s.last);
  }
  w_.x_proj.Forward(g, Group::kXProj, buf.x, buf.raw);
  NormParts(g.ctx, buf);
  w_.dt_proj.Forward(g, Group::kDtProj, Parts(buf.dt_bc)[0], buf.dt);
  for (const TrainSegment& s : segments) {
    LoadPart(s.initial, &LayerState::ssm, state.ssm);
    Scan(g.ctx.exec, buf, {s.begin, s.count, &state});
    StorePart(state.ssm, &LayerState::ssm, s.last);
  }
  if (h.rows != 0) w_.out_proj.Forward(g, Group::kOutProj, buf.y, h, /*accumulate=*/true);
}

void MambaMixer::ScanBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                              const TrainSegment& s) const {
  const size_t inner = w_.a.cols;
  LoadPart(s.initial, &LayerState::ssm, buf.state.ssm);
  LoadPart(s.gradient, &LayerState::ssm, buf.dstate.ssm);
  const auto parts = Parts(kept.dt_bc.Rows(s.begin, s.count));
  const auto dparts = Parts(buf.ddt_bc.Rows(s.begin, s.count));
  kernels::SelectiveScanGrad(g.ctx.exec, {.dt = kept.dt.Rows(s.begin, s.count),
                                          .x = kept.x.Rows(s.begin, s.count),
                                          .z = kept.xz.Cols(inner, inner).Rows(s.begin, s.count),
                                          .b = parts[1],
                                          .c = parts[2],
                                          .a = w_.a,
                                          .d_skip = w_.d_skip,
                                          .state = buf.state.ssm,
                                          .dy = buf.dy.Rows(s.begin, s.count),
                                          .dstate = buf.dstate.ssm,
                                          .ddt = buf.ddt.Rows(s.begin, s.count),
                                          .dx = buf.dx.Rows(s.begin, s.count),
                                          .dz = buf.dxz.Cols(inner, inner).Rows(s.begin, s.count),
                                          .db = dparts[1],
                                          .dc = dparts[2],
                                          .da = buf.da,
                                          .dd_skip = w_.d.d_skip,
                                          .scratch = buf.scratch});
  StorePart(buf.dstate.ssm, &LayerState::ssm, s.gradient);
}

// From the gradients of the normed dt, b and c to those of what x_proj gave, in place.
void MambaMixer::NormBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf) const {
  if (!norm_dt_b_c_) return;
  const auto raw = Parts(kept.raw), gradients = Parts(buf.ddt_bc);
  for (size_t i = 0; i < raw.size(); ++i) {
    kernels::RmsNormGrad(g.ctx.exec, {.x = raw[i],
                                      .dy = gradients[i],
                                      .dx = gradients[i],
                                      .group = raw[i].cols,
                                      .eps = norm_eps_,
                                      .scratch = buf.scratch});
  }
}

void MambaMixer::ConvBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                              const TrainSegment& s) const {
  const size_t inner = w_.a.cols;
  LoadPart(s.initial, &LayerState::conv, buf.state.conv);
  LoadPart(s.gradient, &LayerState::conv, buf.dstate.conv);
  kernels::CausalConv1dGrad(g.ctx.exec, {.x = kept.xz.Cols(0, inner).Rows(s.begin, s.count),
                                         .w = w_.conv_w,
                                         .bias = w_.conv_bias,
                                         .window = buf.state.conv,
                                         .dy = buf.dx.Rows(s.begin, s.count),
                                         .dx = buf.dxz.Cols(0, inner).Rows(s.begin, s.count),
                                         .dw = buf.dconv_w,
                                         .dbias = w_.d.conv_bias,
                                         .dwindow = buf.dstate.conv,
                                         .scratch = buf.scratch});
  StorePart(buf.dstate.conv, &LayerState::conv, s.gradient);
}

void MambaMixer::Backward(GradContext& g, core::Arena& kept_arena, core::Mat<const float> u,
                          std::span<const TrainSegment> segments, core::Mat<const float> dh,
                          core::Mat<float> du) const {
  kept_arena.Rewind();
  g.scratch.Rewind();
  const Buffers kept = CarveKept(kept_arena, u.rows);
  const TrainBuffers buf = CarveTraining(g.scratch, u.rows);
  CopyOrClear(buf.dconv_w, nullptr);
  CopyOrClear(buf.da, nullptr);
  w_.out_proj.WeightGradient(g, kept.y, dh);
  w_.out_proj.InputGradient(g, dh, buf.dy);
  for (size_t i = segments.size(); i-- > 0;) ScanBackward(g, kept, buf, segments[i]);
  w_.dt_proj.WeightGradient(g, Parts(kept.dt_bc)[0], buf.ddt);
  w_.dt_proj.InputGradient(g, buf.ddt, Parts(buf.ddt_bc)[0]);
  NormBackward(g, kept, buf);
  w_.x_proj.WeightGradient(g, kept.x, buf.ddt_bc);
  w_.x_proj.InputGradient(g, buf.ddt_bc, buf.dx, /*accumulate=*/true);
  for (size_t i = segments.size(); i-- > 0;) ConvBackward(g, kept, buf, segments[i]);
  for (size_t n = 0; n < w_.a.rows; ++n) {  // of log(-a)
    for (size_t e = 0; e < w_.a.cols; ++e) buf.da.Row(n)[e] *= w_.a.Row(n)[e];
  }
  AddTransposed(buf.da, w_.d.a_log);
  AddTransposed(buf.dconv_w, w_.d.conv_w);
  w_.in_proj.WeightGradient(g, u, buf.dxz);
  w_.in_proj.InputGradient(g, buf.dxz, du);
}

}  // namespace hognose::nn
