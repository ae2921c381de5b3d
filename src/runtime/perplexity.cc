#include "runtime/perplexity.h"

#include <algorithm>

namespace hognose::runtime {

void NllSum::Add(std::span<const float> logits, int32_t id) {
  if (id < 0 || static_cast<size_t>(id) >= logits.size()) return;
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - best);
  sum_ += best + std::log(sum) - logits[static_cast<size_t>(id)];
  ++targets_;
}

core::Result<NllSum> MeasureNll(Session& session, std::span<const int32_t> ids,
                                core::FunctionRef<bool(size_t done)> progress) {
  NllSum sum;
  HOGNOSE_TRY(session.Score(ids, [&](size_t i, std::span<const float> logits) {
    if (i + 1 < ids.size()) sum.Add(logits, ids[i + 1]);
    return progress(i + 1);
  }));
  return sum;
}

}  // namespace hognose::runtime
