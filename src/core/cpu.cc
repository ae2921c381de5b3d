#include "core/cpu.h"

#include <sched.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <fmt/format.h>
#include <sys/auxv.h>

#include <string_view>
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

// Which registers the system saves (XCR0).
uint32_t SavedRegisters() {
  if ((ReadLeaf(1).ecx & (1u << 27)) == 0) return 0;  // OSXSAVE
  uint32_t lo = 0, hi = 0;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return lo;
}
constexpr uint32_t kXmmYmmOpmaskZmm = 0xE6;
constexpr uint32_t kTiles = 3u << 17;

// Tiles of bf16 and int8, saved by the system, which wants to be asked for them once a process.
bool TilesGranted() {
  constexpr uint32_t kBf16TileInt8 = (1u << 22) | (1u << 24) | (1u << 25);
  if ((ReadLeaf(7).edx & kBf16TileInt8) != kBf16TileInt8) return false;
  if ((SavedRegisters() & kTiles) != kTiles) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
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
  if ((SavedRegisters() & kXmmYmmOpmaskZmm) == kXmmYmmOpmaskZmm) {
    facts.avx512_bf16 = (ReadLeaf(7, 1).eax & (1u << 5)) != 0;
    facts.amx = facts.avx512_bf16 && TilesGranted();
  }
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

#elif defined(__aarch64__)

// The core's name from MIDR_EL1, which the system lets a program read where HWCAP_CPUID says so.
std::string Brand() {
  constexpr unsigned long kHwcapCpuId = 1ul << 11;
  if ((getauxval(AT_HWCAP) & kHwcapCpuId) == 0) return "AArch64";
  uint64_t midr = 0;
  __asm__("mrs %0, midr_el1" : "=r"(midr));
  const uint64_t implementer = (midr >> 24) & 0xFF, part = (midr >> 4) & 0xFFF;
  constexpr struct {
    uint64_t implementer, part;
    std::string_view name;
  } kCores[] = {{0x41, 0xD03, "Cortex-A53"},  {0x41, 0xD07, "Cortex-A57"},
                {0x41, 0xD08, "Cortex-A72"},  {0x41, 0xD0B, "Cortex-A76"},
                {0x41, 0xD0C, "Neoverse N1"}, {0x41, 0xD40, "Neoverse V1"},
                {0x41, 0xD49, "Neoverse N2"}, {0x41, 0xD4F, "Neoverse V2"}};
  for (const auto& core : kCores) {
    if (core.implementer == implementer && core.part == part) return std::string(core.name);
  }
  return fmt::format("AArch64 (implementer 0x{:02x}, part 0x{:03x})", implementer, part);
}

// A file of one word; "" if there is none.
std::string ReadWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// No instruction tells a program the caches' sizes, so /sys does; without it the defaults stay.
void ReadCaches(CpuFacts* facts) {
  for (int i = 0; i < 16; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = ReadWord(folder + "level");
    const std::string size = ReadWord(folder + "size");  // "64K"
    if (level.empty()) return;
    const size_t bytes = static_cast<size_t>(std::strtoull(size.c_str(), nullptr, 10)) << 10;
    if (!size.ends_with('K') || bytes == 0 || ReadWord(folder + "type") == "Instruction") continue;
    if (level == "1") facts->l1d_bytes = bytes;
    if (level == "2") facts->l2_bytes = bytes;
    if (level == "3") facts->l3_bytes = bytes;
  }
}

CpuFacts Read() {
  CpuFacts facts;
  facts.usable_threads = UsableThreads();
  facts.brand = Brand();
  ReadCaches(&facts);
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

std::vector<int> ProcessorsByCore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};
  std::vector<int> first, others;
  std::set<std::string> cores;  // the list of siblings names a core
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::string siblings;
    std::ifstream("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                  "/topology/thread_siblings_list") >>
        siblings;
    const bool own_core = siblings.empty() || cores.insert(siblings).second;
    (own_core ? first : others).push_back(cpu);
  }
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

const CpuFacts& Cpu() {
  static const CpuFacts facts = Read();
  return facts;
}

}  // namespace hognose::core
