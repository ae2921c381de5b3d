// find_nonfinite: the first NaN or infinity of some tensors, if there is one.
//
// Formula    the smallest i with an exponent of all ones in element i of the first such tensor
// Operands   any contiguous f32, bf16 or f16 tensors; other types are finite by nature.
// Scratch    none. Threads: blocks of 1 MiB, of all tensors at once: many are small, and to wait
//            for each would leave threads idle. The answer doesn't depend on the thread count.
// Errors     none.
// Cost       one read of the bytes. Oracle: FindNonFiniteRef.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

struct NonFinite {
  size_t tensor;
  size_t element;
  bool operator==(const NonFinite&) const = default;
};

std::optional<NonFinite> FindNonFinite(core::Exec& exec,
                                       std::span<const core::TensorView> tensors) noexcept;
// The element of a single tensor.
std::optional<size_t> FindNonFinite(core::Exec& exec, const core::TensorView& tensor) noexcept;

std::optional<size_t> FindNonFiniteRef(const core::TensorView& tensor);

}  // namespace hognose::kernels
