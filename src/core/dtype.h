// Element types as they are stored in files and memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/check.h"

namespace hognose::core {

// 16-bit floats as raw bits; src/codecs converts them.
struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kI16, kI8, kU8, kBool };

struct DTypeInfo {
  DType dtype;
  std::string_view name;              // in messages and --json
  std::string_view safetensors_name;  // in a safetensors header
  size_t bytes;
};

inline constexpr std::array<DTypeInfo, 10> kDTypes = {{
    {DType::kF64, "f64", "F64", 8},
    {DType::kF32, "f32", "F32", 4},
    {DType::kBF16, "bf16", "BF16", 2},
    {DType::kF16, "f16", "F16", 2},
    {DType::kI64, "i64", "I64", 8},
    {DType::kI32, "i32", "I32", 4},
    {DType::kI16, "i16", "I16", 2},
    {DType::kI8, "i8", "I8", 1},
    {DType::kU8, "u8", "U8", 1},
    {DType::kBool, "bool", "BOOL", 1},
}};

constexpr const DTypeInfo& Info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }
constexpr std::string_view Name(DType dtype) { return Info(dtype).name; }
constexpr size_t Bytes(DType dtype) { return Info(dtype).bytes; }

// The types that weights may be stored in as they are: f32, bf16, f16.
constexpr bool IsWeightFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

template <typename T>
inline constexpr DType kDTypeOf = DType::kF32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kF64;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<Half> = DType::kF16;

}  // namespace hognose::core
