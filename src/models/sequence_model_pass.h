// SequenceModelPass: loss and gradients of a sequence model for one sequence at a time.
#pragma once

#include <cstdint>
#include <span>

#include "models/language_model_pass.h"
#include "models/sequence_model.h"
#include "models/tape.h"

namespace hognose::models {

// What a sequence should be answered with: normalised numbers, or classes.
struct SequenceTargets {
  core::Mat<const float> values = {};     // [L, O]; regression
  std::span<const int32_t> classes = {};  // [L], 0 .. O-1; classification
};

class SequenceModelPass {
 public:
  static core::Result<SequenceModelPass> Create(const SequenceModel& model, const core::Exec& exec,
                                                const PassOptions& options);

  // The sum of the losses: squared errors or Huber's over rows and outputs, or -log p of the rows'
  // classes. x [L, F] is normalised; the pieces cover all rows.
  double Loss(const SequenceModel& model, core::Mat<const float> x, const SequenceTargets& targets,
              std::span<const Piece> pieces);
  // The same, and adds `scale` times the sum's gradients to the model's gradients.
  double LossAndGradients(const SequenceModel& model, core::Mat<const float> x,
                          const SequenceTargets& targets, std::span<const Piece> pieces,
                          float scale, uint64_t noise = 0);

  size_t bytes() const { return tape_.bytes() + memory_.used(); }

 private:
  explicit SequenceModelPass(Tape tape) : tape_(std::move(tape)) {}
  // Leaves what the head read in `u` and the gradient of its answers in y_ if that is wanted.
  double Forward(const SequenceModel& model, core::Mat<const float> x,
                 const SequenceTargets& targets, std::span<const Piece> pieces, float scale,
                 bool gradient, core::Mat<const float>* u);

  Tape tape_;
  core::Mat<float> y_;   // [rows, O]: answers, then their gradients
  core::Mat<float> du_;  // [rows, D]: gradient of what the head reads
  core::Vec<double> losses_;
  core::Arena memory_;
};

}  // namespace hognose::models
