// Shared by mamba.cc and falcon_mamba.cc: both have Mamba-1's tensors.
#pragma once

#include "models/architecture.h"
#include "nn/mamba.h"

namespace hognose::models {

core::Result<nn::MambaWeights> BindMamba(Fields& config, TensorLoader& tensors,
                                         const std::string& prefix, size_t width);

}  // namespace hognose::models
