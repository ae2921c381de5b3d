// Sampler: from logits to the next token.
//
// In this order: repeat penalty, top-k, top-p, min-p, temperature, one draw. Temperature 0 takes
// the largest logit (after the penalty), the lowest id on ties. Tokens that are not sampleable
// never come.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"

namespace hognose::runtime {

struct SamplerOptions {
  double temperature = 0.8;
  size_t top_k = 40;            // 0: all
  double top_p = 0.95;          // 1: all
  double min_p = 0.05;          // 0: all; relative to the most likely token
  double repeat_penalty = 1.0;  // divides positive and multiplies negative logits of recent tokens
};

class Sampler {
 public:
  // Tokens that the penalty looks back on.
  static constexpr size_t kRecent = 64;

  // What a continuation needs to draw the same tokens.
  struct State {
    core::Rng::State rng = {};
    std::vector<int32_t> recent;  // oldest first, at most kRecent
  };

  // `sampleable` has an entry for every logit, one of them true; it must outlive the sampler.
  Sampler(const SamplerOptions& options, const std::vector<bool>& sampleable, uint64_t seed);

  // Draws from logits [V]. Does not allocate.
  int32_t Sample(std::span<const float> logits);
  // Tells the penalty of a token (of the prompt, or drawn).
  void Accept(int32_t id);

  // The part of the state that a draw changes.
  const core::Rng::State& rng() const { return rng_.state(); }
  void RestoreRng(const core::Rng::State& state) { rng_ = core::Rng(state); }

  State state() const;
  void Restore(const State& state);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  // The order of every choice: larger logit first, lower id on ties.
  static bool Before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  float Penalised(float logit, int32_t id) const;
  // Fills candidates_ with the best `count` tokens, best first.
  void TakeBest(std::span<const float> logits, size_t count);
  // Weights relative to the best candidate; cut by top_p and min_p.
  void Weigh();

  SamplerOptions options_;
  const std::vector<bool>& sampleable_;
  core::Rng rng_;
  std::array<int32_t, kRecent> recent_ = {};
  size_t recent_count_ = 0;  // ever accepted
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace hognose::runtime
