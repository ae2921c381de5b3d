// What a run is resumed from: training_state.safetensors in the output folder, written whole and
// renamed into place, and the model beside it.
//
//   w.<tensor>, m.<tensor>, v.<tensor>   f32: values, moments (trained tensors; as far as kept)
//   metadata: version, step, updates, scale, good_steps, settings (JSON: what the bits depend on),
//             checksum (of everything else)
#pragma once

#include <string>

#include "core/status.h"
#include "core/value.h"
#include "train/parameters.h"
#include "train/trainer.h"

namespace hognose::train {

inline constexpr std::string_view kStateFile = "training_state.safetensors";

// `settings`: an object of everything that the run's bits depend on; a resumed run must have the
// same.
core::Status SaveState(const std::string& path, const Parameters& parameters,
                       const Trainer& trainer, const core::Value& settings);
// Into parameters of the same model. Refuses damage, other tensors and other settings, naming what
// differs, before anything changes.
core::Status LoadState(const std::string& path, Parameters& parameters, Trainer& trainer,
                       const core::Value& settings);

// model.safetensors: the values, f32.
core::Status SaveModel(const std::string& path, const Parameters& parameters);
// F32 safetensors of every trained tensor's gradient times `factor`, under the tensors' names.
core::Status SaveGradients(const std::string& path, const Parameters& parameters, float factor);

}  // namespace hognose::train
