#include "kernels/bench_support.h"
#include "kernels/optimizer/optimizer.h"

namespace hognose::kernels {
namespace {

// in_proj of a layer of Mamba-130M.
constexpr size_t kSize = size_t{3072} * 768;

void BM_AdamW(benchmark::State& state) {
  core::ThreadPool pool(state.range(0));
  core::Exec exec{pool};
  const auto g = BenchValues(kSize);
  auto p = g;
  std::vector<float> m(kSize), v(kSize);
  const AdamWArgs args = {.p = {p.data(), kSize},
                          .m = {m.data(), kSize},
                          .v = {v.data(), kSize},
                          .g = {g.data(), kSize}};
  for (auto _ : state) AdamW(exec, args);
  SetWork(state, 28.0 * kSize, 12.0 * kSize);
}
BENCHMARK(BM_AdamW)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

void BM_SumOfSquares(benchmark::State& state) {
  core::ThreadPool pool(state.range(0));
  core::Exec exec{pool};
  const auto x = BenchValues(kSize);
  std::vector<double> scratch(SumOfSquaresScratch(kSize));
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        SumOfSquares(exec, {x.data(), kSize}, {scratch.data(), scratch.size()}));
  }
  SetWork(state, 4.0 * kSize, 2.0 * kSize);
}
BENCHMARK(BM_SumOfSquares)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
