#include "core/cpu.h"

#include <sched.h>

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hognose::core {
namespace {

size_t UsableThreads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<size_t>(count) : 1;
}

#if defined(__x86_64__)

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Leaf ReadLeaf(uint32_t leaf, uint32_t subleaf = 0) {
  Leaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

bool SystemSavesZmm() {
  if ((ReadLeaf(1).ecx & (1u << 27)) == 0) return false;  // OSXSAVE
  uint32_t lo = 0, hi = 0;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  constexpr uint32_t kXmmYmmOpmaskZmm = 0xE6;
  return (lo & kXmmYmmOpmaskZmm) == kXmmYmmOpmaskZmm;
}

void ReadCaches(uint32_t leaf, CpuFacts* facts) {
  for (uint32_t i = 0; i < 16; ++i) {
    const Leaf r = ReadLeaf(leaf, i);
    const uint32_t type = r.eax & 31;  // 1 data, 2 instruction, 3 unified
    if (type == 0) return;
    if (type == 2) continue;
    const size_t bytes = size_t{(r.ebx >> 22) + 1} * (((r.ebx >> 12) & 1023) + 1) *
                         ((r.ebx & 4095) + 1) * (size_t{r.ecx} + 1);
    const uint32_t level = (r.eax >> 5) & 7;
    if (level == 1) facts->l1d_bytes = bytes;
    if (level == 2) facts->l2_bytes = bytes;
    if (level == 3) facts->l3_bytes = bytes;
  }
}

CpuFacts Read() {
  CpuFacts facts;
  facts.usable_threads = UsableThreads();
  const Leaf vendor = ReadLeaf(0);
  const bool amd = vendor.ebx == 0x68747541;  // "Auth"enticAMD
  if (SystemSavesZmm()) facts.avx512_bf16 = (ReadLeaf(7, 1).eax & (1u << 5)) != 0;
  ReadCaches(amd ? 0x8000001D : 4, &facts);
  const uint32_t siblings = ReadLeaf(0xB, 0).ebx & 0xFFFF;
  if (siblings > 0) facts.threads_per_core = siblings;
  char brand[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Leaf r = ReadLeaf(0x80000002 + i);
    std::memcpy(brand + 16 * i, &r, 16);
  }
  facts.brand = brand;
  while (!facts.brand.empty() && facts.brand.back() == ' ') facts.brand.pop_back();
  return facts;
}

#else

CpuFacts Read() {
  CpuFacts facts;
  facts.usable_threads = UsableThreads();
  return facts;
}

#endif

}  // namespace

const CpuFacts& Cpu() {
  static const CpuFacts facts = Read();
  return facts;
}

}  // namespace hognose::core
