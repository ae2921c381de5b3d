#include "kernels/bench_support.h"
#include "kernels/selective_scan/selective_scan.h"

namespace hognose::kernels {
namespace {

// The scan of Mamba-130M: 1,536 channels, 16 states.
void BM_SelectiveScan(benchmark::State& state) {
  const size_t l = state.range(0), e = 1536, n = 16;
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  const auto dt = BenchValues(l * e, -7.0, -2.0), x = BenchValues(l * e), z = BenchValues(l * e);
  const auto b = BenchValues(l * n), c = BenchValues(l * n), a = BenchValues(n * e, -16.0, -1.0);
  const auto d_skip = BenchValues(e);
  std::vector<float> h(n * e), y(l * e);
  SelectiveScanArgs args;
  args.dt = {dt.data(), l, e, e};
  args.x = {x.data(), l, e, e};
  args.z = {z.data(), l, e, e};
  args.b = {b.data(), l, n, n};
  args.c = {c.data(), l, n, n};
  args.a = {a.data(), n, e, e};
  args.d_skip = {d_skip.data(), e};
  args.state = {h.data(), n, e, e};
  args.y = {y.data(), l, e, e};
  for (auto _ : state) SelectiveScan(exec, args);
  SetWork(state, 4.0 * e * (4.0 * l + 3 * n), 20.0 * l * e * n);
}
BENCHMARK(BM_SelectiveScan)
    ->ArgNames({"L", "threads"})
    ->Args({1, 1})
    ->Args({256, 1})
    ->Args({256, 2})
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
