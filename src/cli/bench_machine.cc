// hognose bench --machine: the limits that everything else is judged by.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/bench.h"
#include "core/arena.h"
#include "core/cpu.h"
#include "core/fp_env.h"
#include "kernels/read_bytes/read_bytes.h"
#include "kernels/target.h"

namespace hognose::cli {
namespace {

// From what a second-level cache holds to far more than any third-level one.
constexpr size_t kReadMiB[] = {1, 4, 16, 64, 128, 256, 512};
// A timed run reads at least so much, however small the block.
constexpr size_t kLeastRead = size_t{64} << 20;

constexpr BenchColumn kReadColumns[] = {
    {"read MiB", "bytes", 10, 0, 1 << 20},
    {"threads", "threads", 9},
    {"GB/s", "bytes_per_second", 10, 1, 1e9},
};
constexpr BenchColumn kMultiplyColumns[] = {
    {"type", "dtype", 8},
    {"instruction", "instruction", 16},
    {"threads", "threads", 9},
    {"GFLOP/s", "operations_per_second", 10, 1, 1e9},
};

// 1, 2, 4, ... and the number of threads asked for.
std::vector<size_t> ThreadCounts(size_t most) {
  std::vector<size_t> counts;
  for (size_t n = 1; n < most; n *= 2) counts.push_back(n);
  counts.push_back(most);
  return counts;
}

// Sizes to read: none above a quarter of the machine's memory.
std::vector<size_t> ReadSizes() {
  const size_t memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<size_t> sizes;
  for (const size_t mib : kReadMiB) {
    if (mib << 20 <= memory / 4) sizes.push_back(mib << 20);
  }
  return sizes;
}

core::Value ReadRow(core::ThreadPool& pool, std::span<const uint8_t> bytes, size_t repeats) {
  core::Exec exec{pool};
  const size_t passes = std::max(size_t{1}, kLeastRead / bytes.size());
  const double seconds = MedianSeconds(repeats, [&] {
    for (size_t i = 0; i < passes; ++i) (void)kernels::ReadBytes(exec, bytes);
  });
  return core::Value::Object{
      {"bytes", bytes.size()},
      {"threads", pool.threads()},
      {"bytes_per_second", static_cast<double>(bytes.size() * passes) / seconds}};
}

core::Value MultiplyRow(core::ThreadPool& pool, kernels::MultiplyType type, size_t repeats) {
  const double rate = MultiplyRate(pool, type, repeats);
  return core::Value::Object{
      {"dtype", kernels::kMultiplyTypeNames[static_cast<size_t>(type)]},
      {"instruction", rate > 0.0 ? core::Value(kernels::UnitFor(type).instruction) : core::Value()},
      {"threads", pool.threads()},
      {"operations_per_second", rate > 0.0 ? core::Value(rate) : core::Value()}};
}

}  // namespace

core::Result<int> BenchMachine(const BenchOptions& o) {
  const core::FlushDenormals flush;
  const auto& cpu = core::Cpu();
  const std::vector<size_t> sizes = ReadSizes();
  const size_t most = sizes.empty() ? 0 : sizes.back();
  // Written by the arena, so that every page is there.
  HOGNOSE_ASSIGN(core::Arena arena, core::Arena::Allocate(most));
  const core::Vec<uint8_t> memory = arena.NewVec<uint8_t>(most);
  std::fill_n(memory.data, memory.size, uint8_t{1});
  core::Value::Array reads, multiplies, targets;
  for (const auto name : kernels::SupportedTargets()) targets.emplace_back(name);
  Note(fmt::format("{}, {}, {} cores, caches {} KiB, {} KiB, {} KiB", cpu.brand,
                   kernels::CurrentTarget(), cpu.physical_cores(), cpu.l1d_bytes >> 10,
                   cpu.l2_bytes >> 10, cpu.l3_bytes >> 10));
  for (const size_t threads : ThreadCounts(o.common.threads.value_or(cpu.physical_cores()))) {
    HOGNOSE_ASSIGN(const auto pool, runtime::NewPool(threads, o.common.pin));
    for (const size_t size : sizes) {
      reads.push_back(ReadRow(*pool, {memory.data, size}, o.repeats));
    }
    for (const auto type : kernels::kMultiplyTypes) {
      multiplies.push_back(MultiplyRow(*pool, type, o.repeats));
    }
  }
  if (!o.common.json) {
    PrintHead(kReadColumns);
    for (const auto& row : reads) PrintRow(kReadColumns, row);
    PrintHead(kMultiplyColumns);
    for (const auto& row : multiplies) PrintRow(kMultiplyColumns, row);
    return kExitDone;
  }
  PrintJson(core::Value::Object{{"cpu", cpu.brand},
                                {"cores", cpu.physical_cores()},
                                {"target", kernels::CurrentTarget()},
                                {"targets", targets},
                                {"l1d_bytes", cpu.l1d_bytes},
                                {"l2_bytes", cpu.l2_bytes},
                                {"l3_bytes", cpu.l3_bytes},
                                {"read", reads},
                                {"multiply", multiplies}});
  return kExitDone;
}

}  // namespace hognose::cli
