#include "models/tensor_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "codecs/decode.h"

namespace hognose::models {
namespace {

bool SameShape(const core::TensorView& tensor, const std::vector<size_t>& want) {
  return std::equal(want.begin(), want.end(), tensor.dims().begin(), tensor.dims().end());
}

bool IsFloat(core::DType dtype) {
  return dtype == core::DType::kF32 || dtype == core::DType::kBF16 || dtype == core::DType::kF16;
}

}  // namespace

bool TensorLoader::HasLayerFrom(const std::string& prefix, size_t first) const {
  const std::string layers = prefix + "layers.";
  for (auto it = tensors_.lower_bound(layers);
       it != tensors_.end() && it->first.starts_with(layers); ++it) {
    const char* end = it->first.data() + it->first.size();
    size_t layer = 0;
    const auto parsed = std::from_chars(it->first.data() + layers.size(), end, layer);
    if (parsed.ec == std::errc() && layer >= first) return true;
  }
  return false;
}

core::Result<core::TensorView> TensorLoader::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end()) return it->second;
  return core::Status::Failed(fmt::format("{}: {}: the tensor is missing", where_, name));
}

core::Status TensorLoader::Bind(const std::string& prefix, std::span<const TensorRow> rows) {
  for (const auto& row : rows) {
    const std::string name = fmt::format("{}{}", prefix, row.name);
    if (!row.required && !Has(name)) continue;
    HOGNOSE_TRY(BindRow(name, row));
  }
  return {};
}

core::Status TensorLoader::BindRow(const std::string& name, const TensorRow& row) {
  HOGNOSE_ASSIGN(const core::TensorView tensor, Find(name));
  used_.insert(name);
  if (!SameShape(tensor, row.shape)) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want {} {}", where_, name,
                                            core::ToString(tensor), core::Name(tensor.dtype),
                                            core::ShapeToString(row.shape)));
  }
  if (tensor.elements() == 0) {  // no kernel takes an empty operand
    return core::Status::Failed(fmt::format("{}: {}: got {}, want no dimension of 0", where_, name,
                                            core::ToString(tensor)));
  }
  if (!IsFloat(tensor.dtype)) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want f32, bf16 or f16", where_, name,
                                            core::Name(tensor.dtype)));
  }
  if (auto* const* matrix = std::get_if<core::TensorView*>(&row.target)) {
    **matrix = tensor;
    return {};
  }
  const core::Vec<float> floats = floats_.New(tensor.elements());
  codecs::Decode(tensor, 0, floats.span());
  *std::get<core::Vec<const float>*>(row.target) = floats;
  return {};
}

std::vector<std::string> TensorLoader::Unused() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (!used_.contains(name)) names.push_back(name);
  }
  return names;
}

core::Mat<const float> Transposed(FloatStore& floats, core::Vec<const float> from, size_t rows,
                                  size_t cols) {
  HOGNOSE_CHECK(from.size == rows * cols);
  const core::Vec<float> to = floats.New(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  }
  return {to.data, cols, rows, rows};
}

core::Result<core::Vec<const float>> NegativeExp(FloatStore& floats, core::Vec<const float> a_log,
                                                 const std::string& where) {
  const core::Vec<float> a = floats.New(a_log.size);
  for (size_t i = 0; i < a.size; ++i) {
    a[i] = -std::exp(a_log[i]);
    if (std::isfinite(a[i])) continue;
    return core::Status::Failed(
        fmt::format("{}: value {}: got {}, want a finite exponential", where, i, a_log[i]));
  }
  return core::Vec<const float>(a);
}

}  // namespace hognose::models
