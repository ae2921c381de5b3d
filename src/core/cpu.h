// What this processor has. On x86 read from CPUID, so that it works without /sys and /proc; on
// AArch64 the caches are in /sys only, and the defaults below are used without it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hognose::core {

struct CpuFacts {
  std::string brand;          // "AMD EPYC 9354 32-Core Processor"
  bool avx512_bf16 = false;   // VDPBF16PS, and the system saves the ZMM registers
  bool amx = false;           // tile products of bf16 and int8, and this process may use them
  size_t l1d_bytes = 32768;   // per core
  size_t l2_bytes = 1 << 20;  // per core
  size_t l3_bytes = 0;        // of one shared slice; 0 if there is none
  size_t usable_threads = 1;  // logical processors this process may run on
  size_t threads_per_core = 1;

  size_t physical_cores() const {
    return usable_threads > threads_per_core ? usable_threads / threads_per_core : 1;
  }
};

// Reads the facts once; later calls return the same object.
const CpuFacts& Cpu();

// Numbers of the logical processors that this process may run on, one of each core first. Where the
// system doesn't tell which share a core (/sys), in order of their numbers.
std::vector<int> ProcessorsByCore();

}  // namespace hognose::core
