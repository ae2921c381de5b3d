// Merge: a checkpoint whose matrices have a LoRA adapter added, W + scale B A, in their own type.
#pragma once

#include "runtime/model.h"
#include "runtime/quantize.h"

namespace hognose::runtime {

// `model` was loaded with an adapter. Its tensors without the adapter's, those that the adapter
// changes computed in f32 and rounded once. Fails on a quantised matrix that would have to change.
core::Result<QuantizedTensors> MergeAdapter(const Model& model);

}  // namespace hognose::runtime
