// read_bytes: reads memory once, for measuring how fast that goes.
//
// Formula    the exclusive or of all 64-bit words; bytes behind the last whole word count as one,
//            filled up with zeros
// Operands   any bytes.
// Scratch    none. Threads: blocks of 1 MiB. The answer does not depend on the thread count.
// Errors     none.
// Cost       one read of the bytes. Oracle: ReadBytesRef.
#pragma once

#include <cstdint>
#include <span>

#include "core/exec.h"

namespace hognose::kernels {

uint64_t ReadBytes(core::Exec& exec, std::span<const uint8_t> bytes) noexcept;

uint64_t ReadBytesRef(std::span<const uint8_t> bytes);

}  // namespace hognose::kernels
