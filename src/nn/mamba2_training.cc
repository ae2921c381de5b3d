// Mamba-2's training passes. Kept for the backward pass: what in_proj gave, the convolution's and
// the scan's results; everything else is computed again.
#include <algorithm>

#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/ssd_scan/ssd_scan.h"
#include "nn/mamba2.h"
#include "nn/small_gradients.h"

namespace hognose::nn {

struct Mamba2Mixer::TrainBuffers {
  core::Mat<float> gated;    // [L, H P]: what out_proj reads
  core::Mat<float> dy;       // [L, H P]: of the gated result, then of y
  core::Mat<float> dzxbcdt;  // [L, 2 H P + 2 G N + H]
  core::Mat<float> dxbc;     // [L, H P + 2 G N]
  LayerState state;          // of the segment at hand
  LayerState dstate;
  core::Mat<float> dconv_w;  // [K, H P + 2 G N]
  core::Vec<float> da;       // [H]
  core::Vec<float> dd_skip;  // [H P]
  core::Vec<float> scratch;  // of the kernels, one after the other
};

core::Status Mamba2Mixer::Trainable() const {
  if (o_.head_dim <= kernels::kMaxGradWidth && o_.states <= kernels::kMaxChunkedStates) return {};
  return core::Status::Failed("got heads of width " + std::to_string(o_.head_dim) + " and " +
                              std::to_string(o_.states) + " states, want at most " +
                              std::to_string(kernels::kMaxGradWidth) + " and " +
                              std::to_string(kernels::kMaxChunkedStates) + " to train");
}

Mamba2Mixer::Buffers Mamba2Mixer::CarveKept(core::Arena& arena, size_t rows) const {
  return {arena.NewMat<float>(rows, w_.in_proj.rows()),
          arena.NewMat<float>(rows, w_.conv_w.cols),
          {},
          arena.NewMat<float>(rows, o_.heads * o_.head_dim)};
}

Mamba2Mixer::TrainBuffers Mamba2Mixer::CarveTraining(core::Arena& arena, size_t rows) const {
  const size_t inner = o_.heads * o_.head_dim, conv = w_.conv_w.cols, taps = w_.conv_w.rows;
  const auto new_state = [&] {
    return LayerState{arena.NewMat<float>(taps, conv),
                      arena.NewMat<float>(o_.heads * o_.states, o_.head_dim)};
  };
  const size_t scratch = std::max(
      {kernels::SsdScanChunkedScratch(rows, o_.heads, o_.groups, o_.states),
       kernels::SsdScanGradScratch(rows, o_.heads, o_.head_dim, o_.groups, o_.states),
       kernels::RmsNormGradScratch(rows, inner), kernels::CausalConv1dGradScratch(taps, conv)});
  return {.gated = arena.NewMat<float>(rows, inner),
          .dy = arena.NewMat<float>(rows, inner),
          .dzxbcdt = arena.NewMat<float>(rows, w_.in_proj.rows()),
          .dxbc = arena.NewMat<float>(rows, conv),
          .state = new_state(),
          .dstate = new_state(),
          .dconv_w = arena.NewMat<float>(taps, conv),
          .da = arena.NewVec<float>(o_.heads),
          .dd_skip = arena.NewVec<float>(inner),
          .scratch = arena.NewVec<float>(scratch)};
}

void Mamba2Mixer::MeasureTraining(core::Arena& arena, size_t rows) const {
  CarveTraining(arena, rows);
}

namespace {

// What a scan and its gradient take alike.
template <typename Args>
Args ScanArgs(const Mamba2Weights& w, const Mamba2Options& o, const core::Mat<float>& zxbcdt,
              const core::Mat<float>& xbc, const core::Mat<float>& state) {
  const size_t inner = o.heads * o.head_dim, bc = o.groups * o.states;
  Args args;
  args.x = xbc.Cols(0, inner);
  args.b = xbc.Cols(inner, bc);
  args.c = xbc.Cols(inner + bc, bc);
  args.dt = zxbcdt.Cols(2 * inner + 2 * bc, o.heads);
  args.dt_bias = w.dt_bias;
  args.a = w.a;
  args.d_skip = w.d_skip;
  args.dt_min = o.dt_min;
  args.dt_max = o.dt_max;
  args.groups = o.groups;
  args.state = state;
  return args;
}

}  // namespace

void Mamba2Mixer::ForwardKeeping(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                                 std::span<const TrainSegment> segments, core::Mat<float> h) const {
  kept.Rewind();
  g.scratch.Rewind();
  const Buffers buf = CarveKept(kept, u.rows);
  const TrainBuffers work = CarveTraining(g.scratch, u.rows);
  w_.in_proj.Forward(g, Group::kInProj, u, buf.zxbcdt);
  for (const TrainSegment& s : segments) {
    LoadPart(s.initial, &LayerState::conv, work.state.conv);
    LayerState state = work.state;
    const Segment segment{s.begin, s.count, &state};
    Convolve(g.ctx.exec, buf, segment);
    StorePart(state.conv, &LayerState::conv, s.last);
    LoadPart(s.initial, &LayerState::ssm, state.ssm);
    auto args = ScanArgs<kernels::SsdScanArgs>(w_, o_, buf.zxbcdt.Rows(s.begin, s.count),
                                               buf.xbc.Rows(s.begin, s.count), state.ssm);
    args.y = buf.y.Rows(s.begin, s.count);
    kernels::SsdScanChunked(g.ctx.exec, args, work.scratch);
    StorePart(state.ssm, &LayerState::ssm, s.last);
  }
  if (h.rows == 0) return;
  kernels::RmsNorm(g.ctx.exec, NormArgs(buf, work.gated));
  w_.out_proj.Forward(g, Group::kOutProj, work.gated, h, /*accumulate=*/true);
}

void Mamba2Mixer::ScanBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                               const TrainSegment& s) const {
  const size_t inner = o_.heads * o_.head_dim, bc = o_.groups * o_.states;
  LoadPart(s.initial, &LayerState::ssm, buf.state.ssm);
  LoadPart(s.gradient, &LayerState::ssm, buf.dstate.ssm);
  const core::Mat<float> dxbc = buf.dxbc.Rows(s.begin, s.count);
  auto args = ScanArgs<kernels::SsdScanGradArgs>(w_, o_, kept.zxbcdt.Rows(s.begin, s.count),
                                                 kept.xbc.Rows(s.begin, s.count), buf.state.ssm);
  args.dy = buf.dy.Rows(s.begin, s.count);
  args.dstate = buf.dstate.ssm;
  args.dx = dxbc.Cols(0, inner);
  args.db = dxbc.Cols(inner, bc);
  args.dc = dxbc.Cols(inner + bc, bc);
  args.ddt = buf.dzxbcdt.Rows(s.begin, s.count).Cols(2 * inner + 2 * bc, o_.heads);
  args.ddt_bias = w_.d.dt_bias;
  args.da = buf.da;
  args.dd_skip = buf.dd_skip;
  args.scratch = buf.scratch;
  kernels::SsdScanGrad(g.ctx.exec, args);
  StorePart(buf.dstate.ssm, &LayerState::ssm, s.gradient);
}

void Mamba2Mixer::ConvBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                               const TrainSegment& s) const {
  const size_t inner = o_.heads * o_.head_dim, conv = w_.conv_w.cols;
  LoadPart(s.initial, &LayerState::conv, buf.state.conv);
  LoadPart(s.gradient, &LayerState::conv, buf.dstate.conv);
  kernels::CausalConv1dGrad(g.ctx.exec, {.x = kept.zxbcdt.Cols(inner, conv).Rows(s.begin, s.count),
                                         .w = w_.conv_w,
                                         .bias = w_.conv_bias,
                                         .window = buf.state.conv,
                                         .dy = buf.dxbc.Rows(s.begin, s.count),
                                         .dx = buf.dzxbcdt.Cols(inner, conv).Rows(s.begin, s.count),
                                         .dw = buf.dconv_w,
                                         .dbias = w_.d.conv_bias,
                                         .dwindow = buf.dstate.conv,
                                         .scratch = buf.scratch});
  StorePart(buf.dstate.conv, &LayerState::conv, s.gradient);
}

void Mamba2Mixer::AddSmallGradients(const TrainBuffers& buf) const {
  AddTransposed(buf.dconv_w, w_.d.conv_w);
  AddProducts(buf.da, w_.a, w_.d.a_log);
  AddRuns(buf.dd_skip, w_.d.d_skip);
}

void Mamba2Mixer::Backward(GradContext& g, core::Arena& kept_arena, core::Mat<const float> u,
                           std::span<const TrainSegment> segments, core::Mat<const float> dh,
                           core::Mat<float> du) const {
  kept_arena.Rewind();
  g.scratch.Rewind();
  const Buffers kept = CarveKept(kept_arena, u.rows);
  const TrainBuffers buf = CarveTraining(g.scratch, u.rows);
  const size_t inner = o_.heads * o_.head_dim;
  CopyOrClear(buf.dconv_w, nullptr);
  std::fill_n(buf.da.data, buf.da.size, 0.0f);
  std::fill_n(buf.dd_skip.data, buf.dd_skip.size, 0.0f);
  w_.out_proj.InputGradient(g, dh, buf.dy);
  const kernels::RmsNormArgs norm = NormArgs(kept, buf.gated);
  kernels::RmsNormGrad(g.ctx.exec, {.x = norm.x,
                                    .z = norm.z,
                                    .w = norm.w,
                                    .dy = buf.dy,
                                    .dx = buf.dy,
                                    .dz = buf.dzxbcdt.Cols(0, inner),
                                    .dw = w_.d.norm_w,
                                    .y = norm.y,
                                    .group = norm.group,
                                    .eps = norm.eps,
                                    .gate = norm.gate,
                                    .normalize = norm.normalize,
                                    .scratch = buf.scratch});
  w_.out_proj.WeightGradient(g, buf.gated, dh);
  for (size_t i = segments.size(); i-- > 0;) {
    ScanBackward(g, kept, buf, segments[i]);
    ConvBackward(g, kept, buf, segments[i]);
  }
  AddSmallGradients(buf);
  w_.in_proj.WeightGradient(g, u, buf.dzxbcdt);
  w_.in_proj.InputGradient(g, buf.dzxbcdt, du);
}

}  // namespace hognose::nn
