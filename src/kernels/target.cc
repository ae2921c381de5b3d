#include "kernels/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>

#include "core/cpu.h"
#include "hwy/highway.h"
#include "kernels/amx.h"

namespace hognose::kernels {
namespace {

struct Named {
  std::string_view name;
  int64_t highway;  // Highway's bits: the target, and what only some kernels are compiled for
  bool bf16;        // with our own VDPBF16PS products
  bool amx;         // with our own tile products
};

constexpr Named kTargets[] = {
#if HWY_ARCH_X86_64
    {"AMX", HWY_AVX3 | HWY_AVX3_DL, true, true},
    {"AVX3_BF16", HWY_AVX3 | HWY_AVX3_DL, true, false},
    {"AVX3_DL", HWY_AVX3 | HWY_AVX3_DL, false, false},
    {"AVX3", HWY_AVX3, false, false},
    {"AVX2", HWY_AVX2, false, false},
    {"SSE4", HWY_SSE4, false, false},
#elif HWY_ARCH_ARM_A64
    {"NEON", HWY_NEON, false, false},
#endif
    {"SCALAR", HWY_SCALAR, false, false},
};

// Highway keeps one chosen target per process; this is its companion for our own functions: the
// index of a forced target in kTargets, or kBest.
constexpr size_t kBest = ~size_t{0};
std::atomic<size_t> forced{kBest};

// What the processor itself has, read once before anything is forced.
int64_t ProcessorTargets() {
  static const int64_t targets = hwy::SupportedTargets() | HWY_SCALAR;
  return targets;
}

bool Runs(const Named& target) {
  const int64_t has = ProcessorTargets() & target.highway;
  // Some processors have VDPBF16PS and not all of AVX3_DL: those products still run, the rest is
  // AVX3.
  if (target.amx && !AmxWorks()) return false;
  if (target.bf16) return (has & HWY_AVX3) != 0 && core::Cpu().avx512_bf16;
  return has == target.highway;
}

size_t CurrentIndex() {
  const size_t index = forced.load(std::memory_order_relaxed);
  if (index != kBest) return index;
  for (size_t i = 0;; ++i) {
    if (Runs(kTargets[i])) return i;  // SCALAR, the last one, always does
  }
}

}  // namespace

std::vector<std::string_view> SupportedTargets() {
  std::vector<std::string_view> names;
  for (const auto& target : kTargets) {
    if (Runs(target)) names.push_back(target.name);
  }
  return names;
}

std::string_view CurrentTarget() { return kTargets[CurrentIndex()].name; }

core::Status ForceTarget(std::string_view name) {
  const int64_t all = ProcessorTargets();
  if (name.empty()) {
    forced.store(kBest);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(all);
    return {};
  }
  for (size_t i = 0; i < std::size(kTargets); ++i) {
    if (kTargets[i].name != name || !Runs(kTargets[i])) continue;
    forced.store(i);
    const int64_t bits = kTargets[i].highway & all;
    hwy::SetSupportedTargetsForTest(bits);
    hwy::GetChosenTarget().Update(bits);
    return {};
  }
  return core::Status::Usage(fmt::format("HOGNOSE_TARGET: got \"{}\", want one of {}", name,
                                         fmt::join(SupportedTargets(), ", ")));
}

bool UseAmx() { return kTargets[CurrentIndex()].amx; }

bool UseAvx512Bf16() { return kTargets[CurrentIndex()].bf16; }

}  // namespace hognose::kernels
