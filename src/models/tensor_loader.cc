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
  if (it == tensors_.end()) {
    return core::Status::Failed(fmt::format("{}: {}: the tensor is missing", where_, name));
  }
  core::TensorView tensor = it->second;
  const auto shape = tensors_.find(name + ".shape");
  if (shape == tensors_.end()) return tensor;
  const core::TensorView& stored = shape->second;
  const auto* sizes = static_cast<const int64_t*>(stored.data);
  constexpr int64_t kMax = int64_t{1} << 31;  // as sizes in the configuration
  if (tensor.rank != 2 || stored.dtype != core::DType::kI64 || stored.elements() != 2 ||
      sizes[0] < 1 || sizes[0] > kMax || sizes[1] < 1 || sizes[1] > kMax) {
    return core::Status::Failed(fmt::format("{}: {}.shape: got {}, want two sizes of a matrix",
                                            where_, name, core::ToString(stored)));
  }
  tensor.shape = {static_cast<size_t>(sizes[0]), static_cast<size_t>(sizes[1])};
  return tensor;
}

core::Result<codecs::WeightMatrix> TensorLoader::Matrix(const std::string& name,
                                                        const core::TensorView& tensor) {
  using codecs::Encoding;
  const bool int8 = tensor.dtype == core::DType::kI8;
  if (core::IsWeightFloat(tensor.dtype)) return codecs::WeightMatrix(tensor);
  const bool codes = int8 || tensor.dtype == core::DType::kU8;
  if (!codes || !Has(name + ".shape")) {
    return core::Status::Failed(fmt::format(
        "{}: {}: got {}{}, want f32, bf16 or f16 (or i8 or u8 codes with {}.shape and .scales)",
        where_, name, core::Name(tensor.dtype), codes ? " alone" : "", name));
  }
  HOGNOSE_ASSIGN(const core::TensorView scales, Find(name + ".scales"));
  codecs::WeightMatrix w;
  w.encoding = int8 ? Encoding::kInt8 : Encoding::kInt4;
  w.rows = tensor.shape[0];
  w.cols = tensor.shape[1];
  w.values = tensors_.find(name)->second;
  w.scales = scales;
  const size_t groups = scales.rank == 2 ? scales.shape[1] : 0;
  for (const size_t group : {codecs::kMinGroup, codecs::kColumnBlock, codecs::kMaxGroup}) {
    const bool same = codecs::PaddedColumns(w.cols, group) == groups * group &&
                      w.values.shape[1] == codecs::RowBytes(w.encoding, w.cols, group);
    if (same) w.group = group;
  }
  const bool fits = w.group != 0 && scales.dtype == core::DType::kBF16 &&
                    scales.shape[0] == w.rows && w.values.shape[0] == w.rows;
  if (!fits) {
    return core::Status::Failed(fmt::format(
        "{}: {}: got {} with scales {}, want {} rows of codes and of bf16 scales for {} columns",
        where_, name, core::ToString(w.values), core::ToString(scales), w.rows, w.cols));
  }
  used_.insert(name + ".scales");
  used_.insert(name + ".shape");
  return w;
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
  if (row.gradient != nullptr) *row.gradient = Gradient(name);
  if (auto* const* matrix = std::get_if<codecs::WeightMatrix*>(&row.target)) {
    HOGNOSE_ASSIGN(**matrix, Matrix(name, tensor));
    return {};
  }
  if (auto* const* linear = std::get_if<nn::Linear*>(&row.target)) {
    HOGNOSE_ASSIGN((*linear)->w, Matrix(name, tensor));
    (*linear)->dw = Gradient(name);
    return BindAdapter(name, *linear);
  }
  if (!core::IsWeightFloat(tensor.dtype)) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want f32, bf16 or f16", where_, name,
                                            core::Name(tensor.dtype)));
  }
  const core::Vec<float> floats = floats_.New(tensor.elements());
  codecs::Decode(tensor, 0, floats.span());
  *std::get<core::Vec<const float>*>(row.target) = floats;
  return {};
}

core::Status TensorLoader::BindAdapter(const std::string& name, nn::Linear* linear) {
  constexpr std::string_view kSuffix = ".weight";
  const std::string module = name.substr(0, name.size() - kSuffix.size());
  const std::string a_name = module + ".lora_A.weight", b_name = module + ".lora_B.weight";
  if (!Has(a_name) && !Has(b_name)) return {};
  HOGNOSE_ASSIGN(const core::TensorView a, Find(a_name));
  if (a.rank != 2) {
    return core::Status::Failed(fmt::format("{}: {}: got {}, want shape [R, {}]", where_, a_name,
                                            core::ToString(a), linear->cols()));
  }
  const size_t rank = a.shape[0];
  linear->lora.scale = adapter_scale_;
  linear->lora.da = Gradient(a_name);
  linear->lora.db = Gradient(b_name);
  return Bind("", {{a_name, {rank, linear->cols()}, &linear->lora.a},
                   {b_name, {linear->rows(), rank}, &linear->lora.b}});
}

core::Vec<float> TensorLoader::Gradient(std::string_view name) const {
  if (gradients_ == nullptr) return {};
  const auto it = gradients_->find(name);
  return it == gradients_->end() ? core::Vec<float>() : it->second;
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
