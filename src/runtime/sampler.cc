#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace hognose::runtime {

Sampler::Sampler(const SamplerOptions& options, const std::vector<bool>& sampleable, uint64_t seed)
    : options_(options), sampleable_(sampleable), rng_(seed) {
  candidates_.reserve(sampleable.size());
  weights_.reserve(sampleable.size());
}

float Sampler::Penalised(float logit, int32_t id) const {
  const size_t count = std::min(recent_count_, kRecent);
  if (std::find(recent_.begin(), recent_.begin() + count, id) == recent_.begin() + count) {
    return logit;
  }
  const auto penalty = static_cast<float>(options_.repeat_penalty);
  return logit > 0.0f ? logit / penalty : logit * penalty;
}

void Sampler::TakeBest(std::span<const float> logits, size_t count) {
  HOGNOSE_CHECK(logits.size() == sampleable_.size());
  const bool penalise = options_.repeat_penalty != 1.0;
  candidates_.clear();
  // A heap of the best `count`, the worst on top. Most logits lose against it at once.
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!sampleable_[i]) continue;
    const auto id = static_cast<int32_t>(i);
    const Candidate c = {penalise ? Penalised(logits[i], id) : logits[i], id};
    if (candidates_.size() == count) {
      if (!Before(c, candidates_.front())) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), Before);
      candidates_.pop_back();
    }
    candidates_.push_back(c);
    std::push_heap(candidates_.begin(), candidates_.end(), Before);
  }
  HOGNOSE_CHECK(!candidates_.empty());
  std::sort_heap(candidates_.begin(), candidates_.end(), Before);
}

void Sampler::Weigh() {
  const double best = candidates_.front().logit;
  double sum = 0.0;
  weights_.clear();
  for (const auto& c : candidates_) sum += weights_.emplace_back(std::exp(c.logit - best));
  // top_p: the shortest run of the likeliest tokens that has this share.
  double share = 0.0;
  size_t keep = 0;
  while (keep < weights_.size() && (keep == 0 || share < options_.top_p * sum)) {
    share += weights_[keep++];
  }
  // min_p: weights are relative to the likeliest one already.
  while (keep > 1 && weights_[keep - 1] < options_.min_p) --keep;
  weights_.resize(keep);
  for (size_t i = 0; i < keep; ++i) {
    weights_[i] = std::exp((candidates_[i].logit - best) / options_.temperature);
  }
}

int32_t Sampler::Sample(std::span<const float> logits) {
  const bool greedy = options_.temperature <= 0.0;
  const size_t all = sampleable_.size();
  TakeBest(logits, greedy ? 1 : (options_.top_k == 0 ? all : std::min(options_.top_k, all)));
  if (greedy) return candidates_.front().id;
  Weigh();
  double sum = 0.0;
  for (const double w : weights_) sum += w;
  double draw = rng_.Uniform() * sum;
  for (size_t i = 0; i < weights_.size(); ++i) {
    draw -= weights_[i];
    if (draw < 0.0) return candidates_[i].id;
  }
  return candidates_[weights_.size() - 1].id;  // the sum's rounding
}

void Sampler::Accept(int32_t id) { recent_[recent_count_++ % kRecent] = id; }

Sampler::State Sampler::state() const {
  State state{rng_.state(), {}};
  const size_t count = std::min(recent_count_, kRecent);
  for (size_t i = recent_count_ - count; i < recent_count_; ++i) {
    state.recent.push_back(recent_[i % kRecent]);
  }
  return state;
}

void Sampler::Restore(const State& state) {
  rng_ = core::Rng(state.rng);
  recent_count_ = 0;
  for (const int32_t id : state.recent) Accept(id);
}

}  // namespace hognose::runtime
