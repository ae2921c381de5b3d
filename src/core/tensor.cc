#include "core/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace hognose::core {

std::string ShapeToString(std::span<const size_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::string ToString(const TensorView& tensor) {
  return fmt::format("{} {}", Name(tensor.dtype), ShapeToString(tensor.dims()));
}

}  // namespace hognose::core
