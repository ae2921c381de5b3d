// Falcon-Mamba: Mamba-1 whose dt, b and c pass through RMS norms without weights.
// Source: "Falcon Mamba: The First Competitive Attention-free 7B Language Model", 2024; checkpoints
// of FalconMambaForCausalLM.
#include "models/mamba.h"

namespace hognose::models {
namespace {

core::Result<std::unique_ptr<nn::Mixer>> BuildMixer(Fields& config, TensorLoader& tensors,
                                                    const std::string& prefix, size_t width) {
  const float eps = config.Epsilon("mixer_rms_eps").value_or(1e-6f);
  HOGNOSE_ASSIGN(const nn::MambaWeights weights, BindMamba(config, tensors, prefix, width));
  return std::unique_ptr<nn::Mixer>(
      std::make_unique<nn::MambaMixer>(weights, /*norm_dt_b_c=*/true, eps));
}

}  // namespace

const Architecture kFalconMamba = {"falcon_mamba", "FalconMambaForCausalLM", "", BuildMixer};

}  // namespace hognose::models
