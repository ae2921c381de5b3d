// NPY version 1.0: little-endian float32 arrays out; float32, float64 and int64 arrays in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/status.h"
#include "core/tensor.h"
#include "io/file.h"

namespace hognose::io {

// Writes [rows, cols] float32. `fill` is given a function that takes the rows one by one, in order;
// exactly `rows` of them must come, each of `cols` values. Nothing is kept in memory.
using NpyRowSink = core::FunctionRef<void(std::span<const float>)>;
core::Status WriteNpy(const std::string& path, size_t rows, size_t cols,
                      core::FunctionRef<core::Status(NpyRowSink)> fill);

struct NpyArray {
  MappedFile file;
  core::TensorView tensor;  // f32, f64 or i64, at most 4-D, C order
};
core::Result<NpyArray> OpenNpy(const std::string& path);

}  // namespace hognose::io
