// Mixer: what a block does with a sequence, and the state that it carries from one call to the
// next.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/tensor.h"
#include "nn/linear.h"

namespace hognose::nn {

// The sizes of one layer's state. A step's arithmetic wants channels fastest, so in memory
//   conv [K, C] and ssm [H * N, P];
// files and users see the field's layout
//   conv [C, K] and ssm [H, P, N], or [P, N] when `heads` is 0 (Mamba-1: one head as wide as E).
struct StateShape {
  size_t taps = 0;      // K
  size_t channels = 0;  // C
  size_t heads = 0;     // H, 0 for Mamba-1
  size_t states = 0;    // N
  size_t width = 0;     // P, or E for Mamba-1

  size_t ssm_rows() const { return (heads == 0 ? 1 : heads) * states; }
  size_t elements() const { return taps * channels + ssm_rows() * width; }
};

// The states of all layers, in one allocation. Deep copies are CopyFrom only.
class State {
 public:
  State() = default;
  static core::Result<State> Create(std::vector<StateShape> shapes);

  size_t layers() const { return layers_.size(); }
  const StateShape& shape(size_t layer) const { return shapes_[layer]; }
  LayerState& layer(size_t i) { return layers_[i]; }
  const LayerState& layer(size_t i) const { return layers_[i]; }
  size_t bytes() const { return arena_.used(); }

  void Clear();
  // Same shapes on both sides.
  void CopyFrom(const State& other);

 private:
  std::vector<StateShape> shapes_;
  std::vector<LayerState> layers_;
  core::Arena arena_;
};

// conv and ssm of one layer in the field's layout, and back. Sizes as in StateShape.
void ExportState(const StateShape& shape, const LayerState& state, float* conv, float* ssm);
void ImportState(const StateShape& shape, const float* conv, const float* ssm, LayerState& state);

// Rows [begin, begin + count) of a pass: the next `count` steps of the sequence whose state this
// is.
struct Segment {
  size_t begin = 0;
  size_t count = 0;
  LayerState* state = nullptr;
};

// Calls body(exec, segment) for every segment. One alone is split over the threads by its kernels;
// several run beside each other, each on one thread: a batch of steps is many small pieces of work.
// The time counts for `group`, which moves the convolutions' or the scans' part of the states.
template <typename Body>
void ForSegments(Context& ctx, Group group, std::span<const Segment> segments, const Body& body) {
  const LayerState& state = *segments[0].state;
  const core::Mat<float>& moved = group == Group::kConv ? state.conv : state.ssm;
  const double bytes = static_cast<double>(moved.rows * moved.cols * sizeof(float));
  const Timed timed(ctx.profile, group,
                    {.state_bytes = 2.0 * bytes * static_cast<double>(segments.size())});
  if (segments.size() == 1) return body(ctx.exec, segments[0]);
  ctx.exec.pool.Run(segments.size(), [&](size_t i) {
    core::Exec alone{*ctx.serial};
    body(alone, segments[i]);
  });
}

class Mixer {
 public:
  virtual ~Mixer() = default;

  virtual StateShape state_shape() const = 0;
  // Carves the buffers that Forward needs for `rows` rows (a measuring arena counts them).
  virtual void Measure(core::Arena& arena, size_t rows) const = 0;
  virtual std::vector<const Linear*> linears() const = 0;
  // The largest K of the products inside, for Context::x_scratch, and the largest rank of an
  // adapter.
  size_t max_cols() const;
  size_t max_rank() const;
  // h [L, D] += mixer(u [L, D]). The rows are those of the segments, one after the other; each
  // segment's state moves on by its count. One step is a segment of 1; a batch is several. Products
  // run over all rows at once; a row has the same bits whatever other segments are there.
  virtual void Forward(Context& ctx, core::Mat<const float> u, std::span<const Segment> segments,
                       core::Mat<float> h) const = 0;

  // Training: one pass over the rows of `segments`, one after the other, each on all threads.

  // Whether the sizes are ones that Backward can do; `what` names them in the message.
  virtual core::Status Trainable() const { return {}; }
  // Carves what ForwardKeeping keeps for Backward, and what Backward needs besides, for `rows`
  // rows.
  virtual void MeasureKept(core::Arena& arena, size_t rows) const = 0;
  virtual void MeasureTraining(core::Arena& arena, size_t rows) const = 0;
  // Floats of GradContext::products.
  size_t GradientScratch(size_t rows) const;
  // Forward, which leaves in `kept` what Backward needs; an empty h: only that. Uses g.scratch.
  virtual void ForwardKeeping(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                              std::span<const TrainSegment> segments, core::Mat<float> h) const = 0;
  // From dh [L, D], the gradient of what Forward added to h, to du [L, D], that of u (written), and
  // to those of the parameters (added).
  virtual void Backward(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                        std::span<const TrainSegment> segments, core::Mat<const float> dh,
                        core::Mat<float> du) const = 0;
};

}  // namespace hognose::nn
