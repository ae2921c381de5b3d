// Quantize: the matrices of a checkpoint re-encoded as INT8, INT4 or BF16; everything else
// untouched.
//
// In a file (and in the result) a quantised matrix `x.weight` is three tensors:
//   x.weight         i8 [M, Kp] or u8 [M, Kp / 2]   codes (codecs/quantized.h)
//   x.weight.scales  bf16 [M, Kp / group]
//   x.weight.shape   i64 [2]                        M and K
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "codecs/quantized.h"
#include "core/exec.h"
#include "core/function_ref.h"
#include "core/status.h"
#include "core/tensor.h"
#include "io/model_folder.h"

namespace hognose::runtime {

struct QuantizeOptions {
  codecs::Encoding encoding = codecs::Encoding::kInt8;  // kPlain: bf16
  size_t group = 64;                                    // 32, 64 or 128
};

// in_proj, x_proj, dt_proj, out_proj, embedding and head.
bool IsQuantizable(std::string_view name);

struct QuantizedTensors {
  core::TensorMap tensors;  // views into `memory`, and those of the source that stayed as they are
  std::vector<std::unique_ptr<uint8_t[]>> memory;
};

// Messages begin with `where`. Fails on tensors that are quantised already. Rows are encoded in
// parallel; the result does not depend on the thread count.
core::Result<QuantizedTensors> Quantize(core::Exec exec, const core::TensorMap& tensors,
                                        const QuantizeOptions& options, std::string_view where);

// The tensors of a folder, one after the other. The pages of each matrix are given back after it,
// so that the model is never in memory in both forms. `before` is called before each tensor and
// ends the work by an error; NaN must be found by then, no integer shows it any more. Messages
// begin with the tensor's file.
using BeforeTensor =
    core::FunctionRef<core::Status(const io::SafetensorsFile& file, const std::string& name)>;
core::Result<QuantizedTensors> QuantizeFolder(core::Exec exec, const io::ModelFolder& folder,
                                              const QuantizeOptions& options, BeforeTensor before);

}  // namespace hognose::runtime
