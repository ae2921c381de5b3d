#include "kernels/bench_support.h"
#include "kernels/rms_norm/rms_norm.h"

namespace hognose::kernels {
namespace {

// The block norm (768) and the gated norm (1,536) of Mamba-2-130M.
void BM_RmsNorm(benchmark::State& state) {
  const size_t l = state.range(0), n = state.range(1);
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const auto x = BenchValues(l * n), z = BenchValues(l * n + 1), w = BenchValues(n);
  std::vector<float> y(l * n);
  RmsNormArgs args;
  args.x = {x.data(), l, n, n};
  args.z = {z.data(), l, n, n};
  args.w = {w.data(), n};
  args.y = {y.data(), l, n, n};
  args.group = n;
  args.gate = n == 768 ? Gate::kNone : Gate::kBeforeNorm;
  for (auto _ : state) RmsNorm(exec, args);
  SetWork(state, 4.0 * l * n * (n == 768 ? 2 : 3), 4.0 * l * n);
}
BENCHMARK(BM_RmsNorm)->ArgNames({"L", "n"})->Args({1, 768})->Args({1, 1536})->Args({256, 1536});

void BM_RmsNormGrad(benchmark::State& state) {
  const size_t l = state.range(0), n = state.range(1);
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const auto x = BenchValues(l * n), z = BenchValues(l * n + 1), w = BenchValues(n);
  const auto dy = BenchValues(l * n + 2);
  std::vector<float> dx(l * n), dz(l * n), dw(n), scratch(RmsNormGradScratch(l, n));
  const RmsNormGradArgs args = {.x = {x.data(), l, n, n},
                                .z = {z.data(), l, n, n},
                                .w = {w.data(), n},
                                .dy = {dy.data(), l, n, n},
                                .dx = {dx.data(), l, n, n},
                                .dz = {dz.data(), l, n, n},
                                .dw = {dw.data(), n},
                                .group = n,
                                .gate = n == 768 ? Gate::kNone : Gate::kBeforeNorm,
                                .scratch = {scratch.data(), scratch.size()}};
  for (auto _ : state) RmsNormGrad(exec, args);
  SetWork(state, 4.0 * l * n * (n == 768 ? 3 : 5), (n == 768 ? 12.0 : 20.0) * l * n);
}
BENCHMARK(BM_RmsNormGrad)->ArgNames({"L", "n"})->Args({256, 768})->Args({256, 1536});

}  // namespace
}  // namespace hognose::kernels
