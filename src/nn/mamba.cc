#include "nn/mamba.h"

#include <algorithm>

#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/selective_scan/selective_scan.h"

namespace hognose::nn {

StateShape MambaMixer::state_shape() const {
  return {.taps = w_.conv_w.rows,
          .channels = w_.conv_w.cols,
          .heads = 0,
          .states = w_.a.rows,
          .width = w_.a.cols};
}

MambaMixer::Buffers MambaMixer::Carve(core::Arena& arena, size_t rows) const {
  const size_t inner = w_.a.cols;
  Buffers buf{.xz = arena.NewMat<float>(rows, 2 * inner),
              .x = arena.NewMat<float>(rows, inner),
              .dt_bc = arena.NewMat<float>(rows, w_.x_proj.rows()),
              .raw = {},
              .dt = arena.NewMat<float>(rows, inner),
              .y = arena.NewMat<float>(rows, inner)};
  buf.raw = buf.dt_bc;
  return buf;
}

std::array<core::Mat<float>, 3> MambaMixer::Parts(const core::Mat<float>& dt_bc) const {
  const size_t states = w_.a.rows, rank = w_.dt_proj.cols();
  return {dt_bc.Cols(0, rank), dt_bc.Cols(rank, states), dt_bc.Cols(rank + states, states)};
}

void MambaMixer::NormParts(Context& ctx, const Buffers& buf) const {
  if (!norm_dt_b_c_) return;
  const Timed timed(ctx.profile, Group::kNorm);
  const auto from = Parts(buf.raw), to = Parts(buf.dt_bc);
  for (size_t i = 0; i < from.size(); ++i) {
    kernels::RmsNorm(ctx.exec, {.x = from[i], .y = to[i], .group = from[i].cols, .eps = norm_eps_});
  }
}

void MambaMixer::Convolve(core::Exec& exec, const Buffers& buf, const Segment& s) const {
  kernels::CausalConv1d(exec, {.x = buf.xz.Cols(0, w_.a.cols).Rows(s.begin, s.count),
                               .w = w_.conv_w,
                               .bias = w_.conv_bias,
                               .window = s.state->conv,
                               .y = buf.x.Rows(s.begin, s.count)});
}

void MambaMixer::Scan(core::Exec& exec, const Buffers& buf, const Segment& s) const {
  const size_t inner = w_.a.cols, states = w_.a.rows, rank = w_.dt_proj.cols();
  const core::Mat<float> dt_bc = buf.dt_bc.Rows(s.begin, s.count);
  kernels::SelectiveScan(exec, {.dt = buf.dt.Rows(s.begin, s.count),
                                .x = buf.x.Rows(s.begin, s.count),
                                .z = buf.xz.Cols(inner, inner).Rows(s.begin, s.count),
                                .b = dt_bc.Cols(rank, states),
                                .c = dt_bc.Cols(rank + states, states),
                                .a = w_.a,
                                .d_skip = w_.d_skip,
                                .state = s.state->ssm,
                                .y = buf.y.Rows(s.begin, s.count)});
}

void MambaMixer::Forward(Context& ctx, core::Mat<const float> u, std::span<const Segment> segments,
                         core::Mat<float> h) const {
  ctx.scratch.Rewind();
  const Buffers buf = Carve(ctx.scratch, u.rows);
  w_.in_proj.Forward(ctx, Group::kInProj, u, buf.xz);
  ForSegments(ctx, Group::kConv, segments,
              [&](core::Exec& exec, const Segment& s) { Convolve(exec, buf, s); });
  w_.x_proj.Forward(ctx, Group::kXProj, buf.x, buf.raw);
  NormParts(ctx, buf);
  w_.dt_proj.Forward(ctx, Group::kDtProj, Parts(buf.dt_bc)[0], buf.dt);
  ForSegments(ctx, Group::kScan, segments,
              [&](core::Exec& exec, const Segment& s) { Scan(exec, buf, s); });
  w_.out_proj.Forward(ctx, Group::kOutProj, buf.y, h, /*accumulate=*/true);
}

}  // namespace hognose::nn
