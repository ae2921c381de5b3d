#include "models/backbone.h"

#include <algorithm>

#include "kernels/rms_norm/rms_norm.h"

namespace hognose::models {

std::vector<nn::StateShape> Backbone::state_shapes() const {
  std::vector<nn::StateShape> shapes;
  for (const auto& block : blocks) shapes.push_back(block.mixer->state_shape());
  return shapes;
}

size_t Backbone::max_cols() const {
  size_t cols = width;
  for (const auto& block : blocks) cols = std::max(cols, block.mixer->max_cols());
  return cols;
}

size_t Backbone::max_rank() const {
  size_t rank = 0;
  for (const auto& block : blocks) rank = std::max(rank, block.mixer->max_rank());
  return rank;
}

size_t Backbone::max_size() const {
  size_t size = width;
  for (const auto& block : blocks) {
    for (const nn::Linear* linear : block.mixer->linears()) {
      size = std::max({size, linear->rows(), linear->cols()});
    }
  }
  return size;
}

core::Result<Workspace> Backbone::NewWorkspace(const core::Exec& exec, size_t max_rows, bool exact,
                                               size_t other_cols) const {
  size_t scratch = 0;
  for (const auto& block : blocks) {
    core::Arena measure;
    block.mixer->Measure(measure, max_rows);
    scratch = std::max(scratch, measure.used());
  }
  Workspace ws{
      .ctx = {.exec = exec, .exact = exact}, .h = {}, .u = {}, .segments = {}, .memory = {}};
  ws.segments.reserve(max_rows);
  const size_t cols = std::max(max_cols(), other_cols);
  const auto carve = [&](core::Arena& arena) {
    ws.h = arena.NewMat<float>(max_rows, width);
    ws.u = arena.NewMat<float>(max_rows, width);
    ws.ctx.x_scratch = arena.NewVec<uint8_t>(kernels::LinearScratch(max_rows, cols));
    ws.ctx.adapters = arena.NewVec<float>(max_rows * max_rank());
  };
  core::Arena measure;
  carve(measure);
  HOGNOSE_ASSIGN(ws.memory, core::Arena::Allocate(measure.used()));
  carve(ws.memory);
  HOGNOSE_ASSIGN(ws.ctx.scratch, core::Arena::Allocate(scratch));
  ws.ctx_bytes = scratch;
  return ws;
}

namespace {

// What the parts of a pass are to block `block`.
std::span<const nn::Segment> Segments(Workspace& ws, std::span<const Part> parts, size_t block) {
  ws.segments.clear();
  size_t begin = 0;
  for (const Part& part : parts) {
    ws.segments.push_back({begin, part.count, &part.state->layer(block)});
    begin += part.count;
  }
  return ws.segments;
}

}  // namespace

void Backbone::Norm(nn::Context& ctx, core::Mat<const float> x, core::Vec<const float> w,
                    core::Mat<float> y) const {
  const nn::Timed timed(ctx.profile, nn::Group::kNorm);
  kernels::RmsNorm(ctx.exec, {.x = x, .w = w, .y = y, .group = width, .eps = norm_eps});
}

void Backbone::Forward(Workspace& ws, size_t rows, std::span<const Part> parts) const {
  const core::Mat<float> h = ws.h.Rows(0, rows), u = ws.u.Rows(0, rows);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Norm(ws.ctx, h, blocks[i].norm_w, u);
    blocks[i].mixer->Forward(ws.ctx, u, Segments(ws, parts, i), h);
  }
}

}  // namespace hognose::models
