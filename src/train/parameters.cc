#include "train/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "codecs/decode.h"
#include "codecs/float16.h"

namespace hognose::train {
namespace {

constexpr size_t kAligned = 32;  // floats

size_t Aligned(size_t floats) { return (floats + kAligned - 1) / kAligned * kAligned; }

bool IsEmbedding(std::string_view name) {
  return name.ends_with("embeddings.weight") || name.ends_with("embedding.weight");
}

// What a tensor stands for: the numbers of a quantised matrix are not its codes.
size_t Elements(const core::TensorMap& tensors, const std::string& name) {
  const bool beside = name.ends_with(".scales") || name.ends_with(".shape");
  if (beside && tensors.contains(name.substr(0, name.rfind('.')))) return 0;
  const auto shape = tensors.find(name + ".shape");
  const bool quantised = shape != tensors.end() && shape->second.dtype == core::DType::kI64 &&
                         shape->second.elements() == 2;
  if (!quantised) return tensors.at(name).elements();
  const auto* sizes = static_cast<const int64_t*>(shape->second.data);
  return static_cast<size_t>(sizes[0]) * static_cast<size_t>(sizes[1]);
}

// An arena that holds what `carve` takes from it.
template <typename Function>
core::Result<core::Arena> Carve(const Function& carve) {
  core::Arena measure;
  carve(measure);
  HOGNOSE_ASSIGN(core::Arena arena, core::Arena::Allocate(measure.used()));
  carve(arena);
  return arena;
}

}  // namespace

bool HasNoDecay(std::string_view name) {
  return name.ends_with("bias") || name.ends_with("A_log") || name.ends_with(".D") ||
         name.ends_with("norm.weight") || name.ends_with("norm_f.weight") || IsEmbedding(name);
}

bool IsMatrix(std::string_view name, const core::TensorView& tensor) {
  return tensor.rank == 2 && name.ends_with(".weight");
}

core::Result<Parameters> Parameters::Create(const core::TensorMap& tensors,
                                            const std::string& where,
                                            const ParameterOptions& options) {
  Parameters p;
  p.precision_ = options.precision;
  for (const auto& [name, tensor] : tensors) {
    if (options.frozen && options.frozen(name)) p.frozen_[name] = tensor;
    p.elements_ += Elements(tensors, name);
  }
  p.tensors_ = p.frozen_;
  for (const bool decays : {true, false}) {
    for (const auto& [name, tensor] : tensors) {
      if (decays == HasNoDecay(name) || p.frozen_.contains(name)) continue;
      if (!core::IsWeightFloat(tensor.dtype)) {
        return core::Status::Failed(fmt::format(
            "{}: {}: got {}, want f32, bf16 or f16 (a quantised model can't be trained)", where,
            name, core::ToString(tensor)));
      }
      if (options.precision != Precision::kF32 && IsMatrix(name, tensor)) {
        p.copied_.push_back(p.parameters_.size());
        p.copy_offsets_.push_back(p.copy_total_);
        p.copy_total_ += Aligned(tensor.elements());
      }
      p.parameters_.push_back({.name = name, .view = tensor, .offset = p.total_});
      p.total_ += Aligned(tensor.elements());
      p.trained_elements_ += tensor.elements();
    }
    if (decays) p.decayed_ = p.total_;
  }
  const auto values = [&](core::Arena& arena) {
    p.values_ = arena.NewVec<float>(p.total_);
    p.copies_ = arena.NewVec<uint16_t>(p.copy_total_);
  };
  HOGNOSE_ASSIGN(p.memory_, Carve(values));
  for (Parameter& parameter : p.parameters_) {
    const core::TensorView from = parameter.view;
    float* value = p.values_.data + parameter.offset;
    codecs::Decode(from, 0, {value, from.elements()});
    if (options.copied) options.copied(from);
    parameter.view.data = value;
    parameter.view.dtype = core::DType::kF32;
    p.tensors_[parameter.name] = parameter.view;
  }
  // Only now: the tensors' own memory may have been given back.
  const auto training = [&](core::Arena& arena) {
    p.gradients_ = arena.NewVec<float>(p.total_);
    p.m_ = arena.NewVec<float>(options.first_moment ? p.total_ : 0);
    p.v_ = arena.NewVec<float>(options.second_moment ? p.total_ : 0);
  };
  HOGNOSE_ASSIGN(p.training_memory_, Carve(training));
  for (size_t i = 0; i < p.copied_.size(); ++i) {
    const Parameter& parameter = p.parameters_[p.copied_[i]];
    core::TensorView& view = p.tensors_[parameter.name];
    view.data = p.copies_.data + p.copy_offsets_[i];
    view.dtype = p.precision_ == Precision::kBF16 ? core::DType::kBF16 : core::DType::kF16;
  }
  return p;
}

size_t Parameters::bytes() const { return memory_.used() + training_memory_.used(); }

models::GradientMap Parameters::gradient_map(core::Vec<float> gradients) const {
  models::GradientMap map;
  for (const Parameter& p : parameters_) {
    map[p.name] = {gradients.data + p.offset, p.view.elements()};
  }
  return map;
}

core::TensorMap Parameters::value_map() const {
  core::TensorMap map = frozen_;
  for (const Parameter& p : parameters_) map[p.name] = p.view;
  return map;
}

void Parameters::Update(core::Exec exec) {
  constexpr size_t kPerTask = size_t{1} << 16;
  for (size_t i = 0; i < copied_.size(); ++i) {
    const core::TensorView& view = parameters_[copied_[i]].view;
    const auto* from = view.As<float>();
    uint16_t* to = copies_.data + copy_offsets_[i];
    const size_t size = view.elements();
    const bool bf16 = precision_ == Precision::kBF16;
    exec.pool.Run((size + kPerTask - 1) / kPerTask, [&](size_t task) {
      for (size_t k = task * kPerTask; k < std::min(size, (task + 1) * kPerTask); ++k) {
        to[k] = bf16 ? codecs::EncodeBF16(from[k]).bits : codecs::EncodeF16(from[k]).bits;
      }
    });
  }
}

}  // namespace hognose::train
