// TinyCheckpoint: a valid checkpoint of a few kilobytes in memory, of which a test breaks one
// thing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "core/value.h"

namespace hognose::testing {

enum class TinyKind { kMamba, kMamba2, kFalconMamba, kOriginalMamba, kOriginalMamba2 };
inline constexpr TinyKind kTinyKinds[] = {TinyKind::kMamba, TinyKind::kMamba2,
                                          TinyKind::kFalconMamba, TinyKind::kOriginalMamba,
                                          TinyKind::kOriginalMamba2};
std::string_view Name(TinyKind kind);

// Memory of exactly the tensor's size, so that a sanitizer sees a read behind its end.
struct TinyTensor {
  core::DType dtype = core::DType::kF32;
  std::vector<size_t> shape;
  std::vector<uint8_t> bytes;
};

struct TinyCheckpoint {
  core::Value config;  // an object
  std::map<std::string, TinyTensor> tensors;

  // A field of the config; "ssm_cfg.x" is x inside ssm_cfg.
  void Set(std::string_view field, core::Value value);
  void Drop(std::string_view field);
  std::vector<std::string> fields() const;  // of ssm_cfg too

  // A tensor of new random values (finite, small); also replaces one.
  void Put(const std::string& name, std::vector<size_t> shape,
           core::DType dtype = core::DType::kF32);
  // The same shape in another type.
  void Retype(const std::string& name, core::DType dtype);

  core::TensorMap views() const;  // lives as long as `tensors` is unchanged
};

// V = 20, D = 8, 2 layers, K = 3, N = 4; Mamba-1: E = 12, R = 2; Mamba-2: H = 4, P = 3, G = 2.
TinyCheckpoint MakeTiny(TinyKind kind);

}  // namespace hognose::testing
