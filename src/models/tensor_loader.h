// TensorLoader: binds the tensors of a checkpoint to a model, checks shapes and types, and
// remembers which names were used.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "codecs/quantized.h"
#include "core/status.h"
#include "core/tensor.h"
#include "nn/linear.h"

namespace hognose::models {

// Owns the small f32 tensors that a model decodes or derives (norms, biases, -exp(A_log)): a few
// kilobytes a layer. Matrices are never copied.
class FloatStore {
 public:
  core::Vec<float> New(size_t size) {
    blocks_.emplace_back(size);
    return {blocks_.back().data(), size};
  }

 private:
  std::deque<std::vector<float>> blocks_;
};

// Where training adds gradients, by tensor name; a tensor that is not here has no gradient.
using GradientMap = std::map<std::string, core::Vec<float>, std::less<>>;

// One row of an architecture's tensor table: where the tensor goes says how it is kept: a matrix in
// its stored type, or floats. An optional one that is absent leaves an empty target. A Linear knows
// its matrix's gradient itself; for floats and a Linear's bias, `gradient` becomes the place.
struct TensorRow {
  std::string_view name;
  std::vector<size_t> shape;
  std::variant<codecs::WeightMatrix*, nn::Linear*, core::Vec<const float>*> target;
  bool required = true;
  core::Vec<float>* gradient = nullptr;
};

class TensorLoader {
 public:
  // `where` begins every message: the weights' file. All three must outlive the loader.
  // `gradients`, if any, too. `adapter_scale`: of the adapters among the tensors.
  TensorLoader(const core::TensorMap& tensors, FloatStore& floats, std::string where,
               const GradientMap* gradients = nullptr, float adapter_scale = 1.0f)
      : tensors_(tensors),
        floats_(floats),
        where_(std::move(where)),
        gradients_(gradients),
        adapter_scale_(adapter_scale) {}

  bool Has(std::string_view name) const { return tensors_.contains(name); }
  // Whether some tensor is called "<prefix>layers.N..." with N >= first.
  bool HasLayerFrom(const std::string& prefix, size_t first) const;
  // The tensor, or an error that says that it is missing. A quantised matrix (runtime/quantize.h
  // has its three tensors) comes with the shape that it stands for.
  core::Result<core::TensorView> Find(const std::string& name) const;
  // Binds every row of a table; names are prefixed.
  core::Status Bind(const std::string& prefix, std::span<const TensorRow> rows);
  core::Status Bind(const std::string& prefix, std::initializer_list<TensorRow> rows) {
    return Bind(prefix, std::span(rows.begin(), rows.size()));
  }

  // Where the gradient of a tensor goes; empty: nowhere.
  core::Vec<float> Gradient(std::string_view name) const;

  FloatStore& floats() { return floats_; }
  const std::string& where() const { return where_; }
  // Names in the checkpoint that no table asked for.
  std::vector<std::string> Unused() const;

 private:
  // The adapter of `name`, "x.weight": x.lora_A.weight and x.lora_B.weight, if they are there.
  core::Status BindAdapter(const std::string& name, nn::Linear* linear);
  core::Status BindRow(const std::string& name, const TensorRow& row);
  // The stored matrix, plain or quantised, `tensor` being what Find gave.
  core::Result<codecs::WeightMatrix> Matrix(const std::string& name,
                                            const core::TensorView& tensor);

  const core::TensorMap& tensors_;
  FloatStore& floats_;
  std::string where_;
  const GradientMap* gradients_;
  float adapter_scale_;
  std::set<std::string, std::less<>> used_;
};

// The transpose of a [rows, cols] table of floats.
core::Mat<const float> Transposed(FloatStore& floats, core::Vec<const float> from, size_t rows,
                                  size_t cols);
// -exp(a_log). Fails, naming the tensor, where that is not finite.
core::Result<core::Vec<const float>> NegativeExp(FloatStore& floats, core::Vec<const float> a_log,
                                                 const std::string& where);

}  // namespace hognose::models
