#include "kernels/bench_support.h"
#include "kernels/read_bytes/read_bytes.h"

namespace hognose::kernels {
namespace {

void BM_ReadBytes(benchmark::State& state) {
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  const std::vector<uint8_t> bytes(static_cast<size_t>(state.range(0)) << 20, 1);
  for (auto _ : state) benchmark::DoNotOptimize(ReadBytes(exec, bytes));
  SetWork(state, static_cast<double>(bytes.size()), 0.0);
}
BENCHMARK(BM_ReadBytes)
    ->ArgNames({"MiB", "threads"})
    ->ArgsProduct({{1, 16, 64, 256}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
