// A model with initial values, from its configuration: what `train` without --init begins with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "core/value.h"

namespace hognose::train {

// Sizes as flags give them; 0: the architecture's own default.
struct ModelSizes {
  std::string architecture = "mamba2";  // or "mamba"
  size_t width = 256;                   // D
  size_t layers = 4;
  size_t expand = 2;                                       // E = expand D
  size_t states = 0;                                       // N: 16 for mamba, 128 for mamba2
  size_t head_dim = 64;                                    // P; mamba2
  size_t groups = 1;                                       // G; mamba2
  size_t taps = 4;                                         // K
  size_t dt_rank = 0;                                      // R: D / 16 rounded up; mamba
  std::optional<std::pair<double, double>> dt_limit = {};  // mamba2
};

// config.json without a vocabulary, in the Hugging Face layout. Errors name the flag.
core::Result<core::Value> MakeConfig(const ModelSizes& sizes);

// `config` with fields set; one that is there already is replaced.
core::Value With(core::Value config, std::initializer_list<core::Value::Member> fields);

struct NewTensors {
  core::TensorMap tensors;  // f32, views into `memory`
  std::vector<std::vector<float>> memory;
};

// The tensors of the model that a configuration in the Hugging Face layout describes, with initial
// values as in math.md 4.4. With `inputs` and `outputs` of a sequence model in place of an
// embedding and a head. `where` begins messages. Reproducible: each tensor has its own random
// numbers, by its name and the seed.
struct SequenceSizes {
  size_t inputs = 0;
  size_t outputs = 0;
};
core::Result<NewTensors> InitialTensors(const core::Value& config, const std::string& where,
                                        uint64_t seed,
                                        const std::optional<SequenceSizes>& sequence = {});

// Adapters (nn::Lora) for every matrix "<..>.<target>.weight" among `tensors`, quantised ones too:
// a uniform within 1 / sqrt(K), b zero. A target that matches nothing is an error. `where` begins
// messages about tensors.
core::Result<NewTensors> LoraTensors(const core::TensorMap& tensors, const std::string& where,
                                     size_t rank, const std::vector<std::string>& targets,
                                     uint64_t seed);

}  // namespace hognose::train
