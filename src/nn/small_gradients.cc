#include "nn/small_gradients.h"

namespace hognose::nn {

void AddTransposed(core::Mat<const float> from, core::Vec<float> to) {
  if (to.size == 0) return;
  HOGNOSE_DCHECK(to.size == from.rows * from.cols);
  for (size_t c = 0; c < from.cols; ++c) {
    for (size_t r = 0; r < from.rows; ++r) to.data[c * from.rows + r] += from.Row(r)[c];
  }
}

void AddProducts(core::Vec<const float> from, core::Vec<const float> factor, core::Vec<float> to) {
  if (to.size == 0) return;
  HOGNOSE_DCHECK(to.size == from.size && to.size == factor.size);
  for (size_t i = 0; i < to.size; ++i) to.data[i] += from.data[i] * factor.data[i];
}

void AddRuns(core::Vec<const float> from, core::Vec<float> to) {
  if (to.size == 0) return;
  const size_t run = from.size / to.size;
  HOGNOSE_DCHECK(run * to.size == from.size);
  for (size_t i = 0; i < to.size; ++i) {
    double sum = 0.0;
    for (size_t k = 0; k < run; ++k) sum += from.data[i * run + k];
    to.data[i] += static_cast<float>(sum);
  }
}

}  // namespace hognose::nn
