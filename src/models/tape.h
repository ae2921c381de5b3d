// Tape: a training pass of one sequence through a backbone, forward and back. Its memory depends on
// the rows of a sequence, never on how many sequences a batch has: they pass one after the other
// and add to the same gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/backbone.h"
#include "nn/gradient.h"

namespace hognose::models {

enum class Checkpointing {
  kNone,   // every block keeps what its backward pass needs
  kLayer,  // only the blocks' inputs are kept; a block runs again before its backward pass
};

// A document of a pass, or a piece of one: its states as in nn::TrainSegment, of all blocks.
struct Piece {
  size_t begin = 0;
  size_t count = 0;
  const nn::State* initial = nullptr;
  nn::State* last = nullptr;
  nn::State* gradient = nullptr;
};

struct TapeOptions {
  size_t rows = 0;  // of the longest sequence
  Checkpointing checkpointing = Checkpointing::kNone;
  bool exact = false;         // products in f32; otherwise operands may be rounded to bf16
  bool half = false;          // products in F16
  size_t other_cols = 0;      // the largest K of products outside the backbone
  size_t other_products = 0;  // GradContext::products that they need
  size_t other_half = 0;      // floats of an operand of theirs
  float dropout = 0.0f;       // of what enters the first block and what each block adds; below 1
};

class Tape {
 public:
  // Fails on a block that can't be trained, naming it.
  static core::Result<Tape> Create(const Backbone& backbone, const core::Exec& exec,
                                   const TapeOptions& options);

  // [rows, D], for the caller to fill before Forward.
  core::Mat<float> input(size_t rows) const { return h_[0].Rows(0, rows); }
  // What is dropped from here on: a function of `noise` alone, the same in Forward and Backward.
  // nullopt: nothing, as for evaluation.
  void set_noise(std::optional<uint64_t> noise) { noise_ = noise; }
  // The residual stream behind the blocks, after norm_f [rows, D]; valid until the next Forward.
  core::Mat<const float> Forward(const Backbone& backbone, size_t rows,
                                 std::span<const Piece> pieces);
  // Adds to the parameters' gradients. dy [rows, D] is the gradient of Forward's result; returns
  // that of the input.
  core::Mat<float> Backward(const Backbone& backbone, core::Mat<const float> dy,
                            std::span<const Piece> pieces);

  nn::GradContext& context() { return g_; }
  size_t bytes() const { return memory_.used(); }

 private:
  explicit Tape(nn::GradContext g) : g_(std::move(g)) {}
  std::span<const nn::TrainSegment> Segments(std::span<const Piece> pieces, size_t block);
  core::Arena& kept(size_t block) { return kept_[kept_.size() == 1 ? 0 : block]; }
  // m times the mask of place `place` (0: the input, i + 1: block i), if anything is dropped.
  void Drop(size_t place, core::Mat<float> m);
  bool drops() const { return dropout_ > 0.0f && noise_.has_value(); }
  // Runs a block over h_[block], adds what it gives to `added` (empty: nobody wants it) and keeps
  // what its backward pass needs.
  void RunBlock(const Backbone& backbone, size_t block, size_t rows, core::Mat<float> added,
                std::span<const Piece> pieces);

  nn::GradContext g_;
  Checkpointing checkpointing_ = Checkpointing::kNone;
  std::vector<core::Mat<float>> h_;  // what each block reads, and what comes after the last
  core::Mat<float> u_;               // a block's normed input; Forward's result
  core::Mat<float> du_, dh_;
  core::Mat<float> branch_;  // with dropout: what a block adds, or its gradient
  float dropout_ = 0.0f;
  std::optional<uint64_t> noise_;
  core::Vec<float> norm_scratch_;
  std::vector<core::Arena> kept_;  // of each block; kLayer: of the block at hand; in memory_
  core::Arena memory_;             // of everything here
  std::vector<nn::TrainSegment> segments_;
};

}  // namespace hognose::models
