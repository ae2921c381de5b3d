// Mamba-1 mixer: in_proj, convolution, input-dependent dt, b, c, selective scan, gate, out_proj.
// With `norm_dt_b_c` (Falcon-Mamba) dt, b and c are each divided by their root mean square first.
// Source: Gu and Dao 2023; math.md 1.1.
#pragma once

#include <array>

#include "nn/mixer.h"

namespace hognose::nn {

struct MambaWeights {
  Linear in_proj;                    // [2 E, D]: rows x, then z
  Linear x_proj;                     // [R + 2 N, E]: rows dt, b, c
  Linear dt_proj;                    // [E, R], with the bias of dt
  Linear out_proj;                   // [D, E]
  core::Mat<const float> conv_w;     // [K, E]
  core::Vec<const float> conv_bias;  // [E] or empty
  core::Mat<const float> a;          // [N, E], negative
  core::Vec<const float> d_skip;     // [E]

  // Where a backward pass adds gradients, in the checkpoint's layout; empty: not wanted.
  struct Gradients {
    core::Vec<float> conv_w;     // [E, K]
    core::Vec<float> conv_bias;  // [E]
    core::Vec<float> a_log;      // [E, N]: of log(-a)
    core::Vec<float> d_skip;     // [E]
  } d;
};

class MambaMixer : public Mixer {
 public:
  MambaMixer(const MambaWeights& weights, bool norm_dt_b_c, float norm_eps)
      : w_(weights), norm_dt_b_c_(norm_dt_b_c), norm_eps_(norm_eps) {}

  StateShape state_shape() const override;
  void Measure(core::Arena& arena, size_t rows) const override { Carve(arena, rows); }
  std::vector<const Linear*> linears() const override {
    return {&w_.in_proj, &w_.x_proj, &w_.dt_proj, &w_.out_proj};
  }
  void Forward(Context& ctx, core::Mat<const float> u, std::span<const Segment> segments,
               core::Mat<float> h) const override;

  void MeasureKept(core::Arena& arena, size_t rows) const override { CarveKept(arena, rows); }
  void MeasureTraining(core::Arena& arena, size_t rows) const override;
  void ForwardKeeping(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                      std::span<const TrainSegment> segments, core::Mat<float> h) const override;
  void Backward(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                std::span<const TrainSegment> segments, core::Mat<const float> dh,
                core::Mat<float> du) const override;

 private:
  struct Buffers {
    core::Mat<float> xz;     // [L, 2 E]
    core::Mat<float> x;      // [L, E] after the convolution
    core::Mat<float> dt_bc;  // [L, R + 2 N]; with norm_dt_b_c after the norms
    core::Mat<float> raw;    // [L, R + 2 N]: what x_proj gave; dt_bc itself unless that is kept
    core::Mat<float> dt;     // [L, E]
    core::Mat<float> y;      // [L, E]
  };
  struct TrainBuffers;
  Buffers Carve(core::Arena& arena, size_t rows) const;
  Buffers CarveKept(core::Arena& arena, size_t rows) const;
  TrainBuffers CarveTraining(core::Arena& arena, size_t rows) const;
  // Columns of [L, R + 2 N] that are dt, b or c.
  std::array<core::Mat<float>, 3> Parts(const core::Mat<float>& dt_bc) const;
  // dt_bc from what x_proj gave.
  void NormParts(Context& ctx, const Buffers& buf) const;
  void ScanBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                    const TrainSegment& segment) const;
  void ConvBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                    const TrainSegment& segment) const;
  void NormBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf) const;
  void Convolve(core::Exec& exec, const Buffers& buf, const Segment& segment) const;
  void Scan(core::Exec& exec, const Buffers& buf, const Segment& segment) const;

  MambaWeights w_;
  bool norm_dt_b_c_;
  float norm_eps_;
};

}  // namespace hognose::nn
