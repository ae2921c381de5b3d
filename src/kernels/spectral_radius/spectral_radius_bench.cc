#include "kernels/bench_support.h"
#include "kernels/spectral_radius/spectral_radius.h"

namespace hognose::kernels {
namespace {

void BM_SpectralRadius(benchmark::State& state) {
  const size_t batch = state.range(0), n = state.range(1);
  core::ThreadPool pool(state.range(2));
  core::Exec exec{pool};
  const std::vector<float> a = BenchValues(batch * n * n);
  std::vector<float> rho(batch);
  std::vector<double> scratch(SpectralRadiusScratch(n, batch));
  const SpectralRadiusArgs<float> args = {.a = {a.data(), batch * n, n, n},
                                          .rho = {rho.data(), batch},
                                          .scratch = {scratch.data(), scratch.size()}};
  for (auto _ : state) SpectralRadius(exec, args);
  SetWork(state, 4.0 * a.size(), kSpectralSquarings * 2.0 * batch * n * n * n);
}
BENCHMARK(BM_SpectralRadius)
    ->ArgNames({"B", "n", "threads"})
    ->UseRealTime()
    ->Args({100, 16, 1})
    ->Args({100, 16, 2})
    ->Args({2, 128, 1})
    ->Args({2, 128, 2});

}  // namespace
}  // namespace hognose::kernels
