// LanguageModelPass: loss and gradients of a language model for one sequence at a time. The logits
// exist for a block of rows only, whatever the vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/language_model.h"
#include "models/tape.h"

namespace hognose::models {

struct PassOptions {
  size_t rows = 0;  // of the longest sequence
  Checkpointing checkpointing = Checkpointing::kNone;
  bool exact = false;  // products in f32; otherwise operands may be rounded to bf16
  bool half = false;   // products in F16
  float dropout = 0.0f;
};

class LanguageModelPass {
 public:
  static core::Result<LanguageModelPass> Create(const LanguageModel& model, const core::Exec& exec,
                                                const PassOptions& options);

  // The sum of -log p(targets[l] | ids[0..l]) over the rows whose target isn't kernels::kIgnored.
  // ids [L], all below input_ids(); targets [L], below logits_size(). The pieces cover all rows.
  double Loss(const LanguageModel& model, std::span<const int32_t> ids,
              std::span<const int32_t> targets, std::span<const Piece> pieces);
  // The same, and adds `scale` times the sum's gradients to the model's gradients. What dropout
  // drops is a function of `noise`.
  double LossAndGradients(const LanguageModel& model, std::span<const int32_t> ids,
                          std::span<const int32_t> targets, std::span<const Piece> pieces,
                          float scale, uint64_t noise = 0);

  size_t bytes() const { return tape_.bytes() + memory_.used(); }

 private:
  explicit LanguageModelPass(Tape tape) : tape_(std::move(tape)) {}
  core::Mat<const float> Forward(const LanguageModel& model, std::span<const int32_t> ids,
                                 std::span<const Piece> pieces);
  double HeadBlock(const LanguageModel& model, core::Mat<const float> u, size_t begin,
                   std::span<const int32_t> targets, float scale, bool gradient);

  Tape tape_;
  core::Mat<float> logits_;  // [rows of a block, V]
  core::Mat<float> du_;      // [rows, D]: gradient of what the head reads
  core::Vec<double> losses_;
  core::Arena memory_;
};

}  // namespace hognose::models
