// Decoding of whole runs of elements, for small tensors and single rows; kernels convert in
// registers.
#pragma once

#include <span>

#include "core/tensor.h"

namespace hognose::codecs {

// out[i] = element begin + i of an f32, bf16 or f16 tensor.
void Decode(const core::TensorView& tensor, size_t begin, std::span<float> out);

}  // namespace hognose::codecs
