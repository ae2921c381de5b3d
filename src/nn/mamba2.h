// Mamba-2 mixer: one in_proj for z, x, b, c and dt, convolution over x, b and c, one decay a head,
// gated norm per group, out_proj. Source: Dao and Gu 2024; math.md 1.2.
#pragma once

#include "kernels/rms_norm/rms_norm.h"
#include "nn/mixer.h"

namespace hognose::nn {

struct Mamba2Weights {
  Linear in_proj;                    // [2 H P + 2 G N + H, D]: rows z, x, b, c, dt
  Linear out_proj;                   // [D, H P]
  core::Mat<const float> conv_w;     // [K, H P + 2 G N]
  core::Vec<const float> conv_bias;  // [H P + 2 G N] or empty
  core::Vec<const float> dt_bias;    // [H]
  core::Vec<const float> a;          // [H], negative
  core::Vec<const float> d_skip;     // [H P]: a value per head is repeated
  core::Vec<const float> norm_w;     // [H P]; empty without the norm

  // Where a backward pass adds gradients, in the checkpoint's layout; empty: not wanted.
  struct Gradients {
    core::Vec<float> conv_w;     // [H P + 2 G N, K]
    core::Vec<float> conv_bias;  // [H P + 2 G N]
    core::Vec<float> dt_bias;    // [H]
    core::Vec<float> a_log;      // [H]: of log(-a)
    core::Vec<float> d_skip;     // [H] or [H P]
    core::Vec<float> norm_w;     // [H P]
  } d;
};

struct Mamba2Options {
  size_t heads = 0;     // H
  size_t head_dim = 0;  // P
  size_t groups = 1;    // G
  size_t states = 0;    // N
  float dt_min = 0.0f;
  float dt_max = 0.0f;    // infinity for no limit
  bool normalize = true;  // false: y silu(z) without the norm
  kernels::Gate gate = kernels::Gate::kBeforeNorm;
  float norm_eps = 1e-5f;
};

class Mamba2Mixer : public Mixer {
 public:
  Mamba2Mixer(const Mamba2Weights& weights, const Mamba2Options& options)
      : w_(weights), o_(options) {}

  StateShape state_shape() const override;
  void Measure(core::Arena& arena, size_t rows) const override { Carve(arena, rows); }
  std::vector<const Linear*> linears() const override { return {&w_.in_proj, &w_.out_proj}; }
  void Forward(Context& ctx, core::Mat<const float> u, std::span<const Segment> segments,
               core::Mat<float> h) const override;

  core::Status Trainable() const override;
  void MeasureKept(core::Arena& arena, size_t rows) const override { CarveKept(arena, rows); }
  void MeasureTraining(core::Arena& arena, size_t rows) const override;
  void ForwardKeeping(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                      std::span<const TrainSegment> segments, core::Mat<float> h) const override;
  void Backward(GradContext& g, core::Arena& kept, core::Mat<const float> u,
                std::span<const TrainSegment> segments, core::Mat<const float> dh,
                core::Mat<float> du) const override;

 private:
  struct Buffers {
    core::Mat<float> zxbcdt;  // [L, 2 H P + 2 G N + H]
    core::Mat<float> xbc;     // [L, H P + 2 G N] after the convolution
    core::Mat<float> dt;      // [L, 2 H]: dt and decay; not kept
    core::Mat<float> y;       // [L, H P]
  };
  struct TrainBuffers;
  Buffers Carve(core::Arena& arena, size_t rows) const;
  Buffers CarveKept(core::Arena& arena, size_t rows) const;
  TrainBuffers CarveTraining(core::Arena& arena, size_t rows) const;
  void ScanBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                    const TrainSegment& segment) const;
  void ConvBackward(GradContext& g, const Buffers& kept, const TrainBuffers& buf,
                    const TrainSegment& segment) const;
  void AddSmallGradients(const TrainBuffers& buf) const;
  kernels::RmsNormArgs NormArgs(const Buffers& buf, core::Mat<float> out) const;
  void Convolve(core::Exec& exec, const Buffers& buf, const Segment& segment) const;
  void Scan(core::Exec& exec, const Buffers& buf, const Segment& segment) const;

  Mamba2Weights w_;
  Mamba2Options o_;
};

}  // namespace hognose::nn
