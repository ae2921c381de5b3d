// From the layout that kernels give small gradients in to the checkpoint's. An empty target is not
// wanted.
#pragma once

#include "core/tensor.h"

namespace hognose::nn {

// to [C, R] += from [R, C] transposed.
void AddTransposed(core::Mat<const float> from, core::Vec<float> to);
// to[i] += from[i] factor[i].
void AddProducts(core::Vec<const float> from, core::Vec<const float> factor, core::Vec<float> to);
// to[i] += the sum of the i-th of to.size runs of `from`.
void AddRuns(core::Vec<const float> from, core::Vec<float> to);

}  // namespace hognose::nn
