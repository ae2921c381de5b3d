// NPY, NumPy's array file: little-endian float32 arrays out (version 1.0); float32, float64,
// int64 and int32 arrays in (versions 1.0 and 2.0).
//
//   "\x93NUMPY" | u8 major, u8 minor | u16 (1.0) or u32 (2.0) n | n bytes of header | data
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//
// Refused: other element types, big-endian data, Fortran order, more than 4 dimensions, and data
// that is shorter or longer than the shape says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "core/status.h"
#include "core/tensor.h"
#include "io/file.h"

namespace hognose::io {

// Writes [rows, cols] float32. `fill` is given a function that takes the rows one by one, in order;
// exactly `rows` of them must come, each of `cols` values. It returns false once nothing more can
// be written, so that long work may stop. Nothing is kept in memory.
using NpyRowSink = core::FunctionRef<bool(std::span<const float>)>;
core::Status WriteNpy(const std::string& path, size_t rows, size_t cols,
                      core::FunctionRef<core::Status(NpyRowSink)> fill);

// By its name or its first bytes.
bool LooksLikeNpy(std::string_view path, std::string_view bytes);

struct NpyArray {
  MappedFile file;
  std::unique_ptr<uint8_t[]> copy;  // the data, if it isn't aligned in the file
  core::TensorView tensor;          // f32, f64, i64 or i32, at most 4-D, C order
};
core::Result<NpyArray> OpenNpy(const std::string& path);
// The same over bytes in memory (tests, fuzzing); `bytes` must outlive the result.
core::Result<NpyArray> ParseNpy(std::span<const uint8_t> bytes, std::string_view where);

}  // namespace hognose::io
