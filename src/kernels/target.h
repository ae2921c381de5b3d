// Which instruction set the kernels run on. Chosen from the processor at the first call; a process
// may force a lower one (HOGNOSE_TARGET, tests).
//
// Targets: SCALAR (plain C++), SSE4, AVX2, AVX3 (AVX-512 F, BW, CD, DQ, VL) and AVX3_DL (with VNNI,
// used by quantised products) from Highway; AVX3_BF16 (AVX3, AVX3_DL where there is one, and
// VDPBF16PS) and AMX (AVX3_BF16 and tiles), whose products are our own functions. On AArch64:
// SCALAR and NEON; Highway asks for the AES instructions beside NEON, so a processor without them
// gets SCALAR.
#pragma once

#include <string_view>
#include <vector>

#include "core/status.h"

namespace hognose::kernels {

// The names of all targets that this processor can run, best first.
std::vector<std::string_view> SupportedTargets();

// The target in use.
std::string_view CurrentTarget();

// Uses `name` from now on; "" goes back to the best one. Fails on an unknown name and on a target
// that this processor lacks. Not to be called while a kernel runs: the choice is one per process.
core::Status ForceTarget(std::string_view name);

// True when products may use VDPBF16PS.
bool UseAvx512Bf16();
// True when products of bf16 and of quantised weights use AMX.
bool UseAmx();

}  // namespace hognose::kernels
