// find_nonfinite: the first NaN or infinity of a tensor, if there is one.
//
// Formula    the smallest i with an exponent of all ones in element i
// Operands   any contiguous f32, bf16 or f16 tensor; other types are finite by nature.
// Scratch    none. Threads: blocks of 1 MiB. The answer doesn't depend on the thread count.
// Errors     none.
// Cost       one read of the bytes. Oracle: FindNonFiniteRef.
#pragma once

#include <cstddef>
#include <optional>

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

std::optional<size_t> FindNonFinite(core::Exec& exec, const core::TensorView& tensor) noexcept;

std::optional<size_t> FindNonFiniteRef(const core::TensorView& tensor);

}  // namespace hognose::kernels
