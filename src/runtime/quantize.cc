#include "runtime/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "codecs/float16.h"
#include "io/file.h"

namespace hognose::runtime {
namespace {

using codecs::Encoding;

// Memory of the result, kept by it.
uint8_t* NewBytes(QuantizedTensors& out, size_t bytes) {
  out.memory.push_back(std::make_unique<uint8_t[]>(bytes));
  return out.memory.back().get();
}

// Calls encode(row, its values) for all rows of a matrix.
template <typename Encode>
void ForRows(core::Exec& exec, const core::TensorView& from, const Encode& encode) {
  const size_t rows = from.shape[0], cols = from.shape[1];
  constexpr size_t kRowsPerTask = 16;
  exec.pool.Run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    std::vector<float> values(cols);
    const codecs::WeightMatrix w(from);
    for (size_t m = task * kRowsPerTask; m < std::min(rows, (task + 1) * kRowsPerTask); ++m) {
      codecs::DecodeRow(w, m, values);
      encode(m, std::span<const float>(values));
    }
  });
}

void ToBF16(core::Exec& exec, const std::string& name, const core::TensorView& from,
            QuantizedTensors& out) {
  auto* values = reinterpret_cast<core::BFloat16*>(NewBytes(out, 2 * from.elements()));
  ForRows(exec, from, [&](size_t m, std::span<const float> row) {
    std::transform(row.begin(), row.end(), values + m * row.size(), codecs::EncodeBF16);
  });
  core::TensorView to = from;
  to.data = values;
  to.dtype = core::DType::kBF16;
  out.tensors[name] = to;
}

void ToIntegers(core::Exec& exec, const std::string& name, const core::TensorView& from,
                const QuantizeOptions& o, QuantizedTensors& out) {
  const size_t rows = from.shape[0], cols = from.shape[1];
  const size_t row_bytes = codecs::RowBytes(o.encoding, cols, o.group);
  const size_t groups = codecs::PaddedColumns(cols, o.group) / o.group;
  uint8_t* codes = NewBytes(out, rows * row_bytes);
  auto* scales = reinterpret_cast<core::BFloat16*>(NewBytes(out, 2 * rows * groups));
  auto* shape = reinterpret_cast<int64_t*>(NewBytes(out, 2 * sizeof(int64_t)));
  shape[0] = static_cast<int64_t>(rows);
  shape[1] = static_cast<int64_t>(cols);
  ForRows(exec, from, [&](size_t m, std::span<const float> row) {
    codecs::EncodeRow(row, o.encoding, o.group, {codes + m * row_bytes, row_bytes},
                      {scales + m * groups, groups});
  });
  const bool int8 = o.encoding == Encoding::kInt8;
  out.tensors[name] = {codes, int8 ? core::DType::kI8 : core::DType::kU8, 2, {rows, row_bytes}};
  out.tensors[name + ".scales"] = {scales, core::DType::kBF16, 2, {rows, groups}};
  out.tensors[name + ".shape"] = {shape, core::DType::kI64, 1, {2}};
}

}  // namespace

bool IsQuantizable(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {
      ".in_proj.weight",  ".x_proj.weight",    ".dt_proj.weight", ".out_proj.weight",
      "embedding.weight", "embeddings.weight", "lm_head.weight"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

core::Result<QuantizedTensors> Quantize(core::Exec exec, const core::TensorMap& tensors,
                                        const QuantizeOptions& options, std::string_view where) {
  QuantizedTensors out;
  for (const auto& [name, tensor] : tensors) {
    if (!IsQuantizable(name)) {
      out.tensors.emplace(name, tensor);
      continue;
    }
    if (tensors.contains(name + ".scales")) {
      return core::Status::Failed(
          fmt::format("{}: {}: got {}, which is quantised already, want f32, bf16 or f16", where,
                      name, core::Name(tensor.dtype)));
    }
    if (tensor.rank != 2 || !core::IsWeightFloat(tensor.dtype)) {
      return core::Status::Failed(fmt::format("{}: {}: got {}, want a matrix of f32, bf16 or f16",
                                              where, name, core::ToString(tensor)));
    }
    if (options.encoding == Encoding::kPlain) {
      ToBF16(exec, name, tensor, out);
    } else {
      ToIntegers(exec, name, tensor, options, out);
    }
  }
  return out;
}

core::Result<QuantizedTensors> QuantizeFolder(core::Exec exec, const io::ModelFolder& folder,
                                              const QuantizeOptions& options, BeforeTensor before) {
  QuantizedTensors all;
  for (const auto& file : folder.files) {
    for (const auto& [name, tensor] : file.tensors()) {
      HOGNOSE_TRY(before(file, name));
      core::TensorMap one = {{name, tensor}};
      // Scales beside it tell that it is quantised, which is refused.
      const auto scales = folder.tensors.find(name + ".scales");
      if (scales != folder.tensors.end()) one.insert(*scales);
      HOGNOSE_ASSIGN(auto part, Quantize(exec, one, options, file.path()));
      all.tensors.merge(part.tensors);
      std::move(part.memory.begin(), part.memory.end(), std::back_inserter(all.memory));
      if (IsQuantizable(name)) file.DropPages(tensor);
    }
  }
  return all;
}

}  // namespace hognose::runtime
