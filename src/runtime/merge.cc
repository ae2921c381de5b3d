#include "runtime/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "codecs/decode.h"
#include "codecs/float16.h"
#include "kernels/find_nonfinite/find_nonfinite.h"

namespace hognose::runtime {
namespace {

// Writes floats in a tensor's own type.
void Encode(std::span<const float> from, core::DType dtype, void* to, size_t begin) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (dtype == core::DType::kF32) static_cast<float*>(to)[begin + i] = from[i];
    if (dtype == core::DType::kBF16) {
      static_cast<core::BFloat16*>(to)[begin + i] = codecs::EncodeBF16(from[i]);
    }
    if (dtype == core::DType::kF16) {
      static_cast<core::Half*>(to)[begin + i] = codecs::EncodeF16(from[i]);
    }
  }
}

std::vector<float> Floats(const core::TensorView& tensor) {
  std::vector<float> floats(tensor.elements());
  codecs::Decode(tensor, 0, floats);
  return floats;
}

// out = w + scale b a, w [M, K], a [R, K], b [M, R].
void AddProduct(core::Exec exec, const core::TensorView& w, const core::TensorView& a,
                const core::TensorView& b, float scale, void* out) {
  const std::vector<float> down = Floats(a), up = Floats(b);
  const size_t cols = w.shape[1], rank = a.shape[0];
  exec.pool.Run(w.shape[0], [&](size_t m) {
    std::vector<float> row(cols);
    codecs::Decode(w, m * cols, row);
    for (size_t r = 0; r < rank; ++r) {
      const float factor = scale * up[m * rank + r];
      for (size_t k = 0; k < cols; ++k) row[k] += factor * down[r * cols + k];
    }
    Encode(row, w.dtype, out, m * cols);
  });
}

}  // namespace

core::Result<QuantizedTensors> MergeAdapter(const Model& model) {
  constexpr std::string_view kWeight = ".weight";
  HOGNOSE_CHECK(model.adapter.has_value());
  QuantizedTensors out;
  core::Exec exec = model.exec();
  for (const auto& [name, tensor] : model.folder.tensors) {
    if (model.adapter->tensors.contains(name)) continue;
    out.tensors[name] = tensor;
    if (!name.ends_with(kWeight)) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const auto a = model.adapter->tensors.find(module + std::string(io::kLoraA));
    const auto b = model.adapter->tensors.find(module + std::string(io::kLoraB));
    if (a == model.adapter->tensors.end()) continue;
    if (!core::IsWeightFloat(tensor.dtype)) {
      return core::Status::Failed(
          fmt::format("{}: {}: got {}, want f32, bf16 or f16 to add an adapter to", model.path,
                      name, core::Name(tensor.dtype)));
    }
    out.memory.push_back(std::make_unique<uint8_t[]>(tensor.bytes()));
    AddProduct(exec, tensor, a->second, b->second, model.adapter->scale, out.memory.back().get());
    core::TensorView& merged = out.tensors[name];
    merged.data = out.memory.back().get();
    if (const auto bad = kernels::FindNonFinite(exec, merged)) {
      return core::Status::Failed(
          fmt::format("{}: {}: element {} with the adapter is not a finite number in {}",
                      model.path, name, *bad, core::Name(tensor.dtype)));
    }
  }
  return out;
}

}  // namespace hognose::runtime
