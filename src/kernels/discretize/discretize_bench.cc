#include "kernels/bench_support.h"
#include "kernels/discretize/discretize.h"

namespace hognose::kernels {
namespace {

template <typename T>
std::vector<T> Values(size_t size, double lo, double hi) {
  const std::vector<float> values = BenchValues(size, lo, hi);
  return {values.begin(), values.end()};
}

// Dense: 1,000 systems of 16 states and an input.
template <typename T>
void BM_Discretize(benchmark::State& state) {
  const size_t batch = 1000, n = 16;
  const auto method = static_cast<DiscretizeMethod>(state.range(0));
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  const std::vector<T> a = Values<T>(batch * n * n, -1, 1), b = Values<T>(batch * n, -1, 1);
  const std::vector<T> dt = Values<T>(batch, 0.01, 0.5);
  std::vector<T> abar(a.size()), bbar(b.size());
  std::vector<T> scratch(DiscretizeScratch<T>(method, batch, n, 1));
  const DiscretizeArgs<T> args = {.a = {a.data(), batch * n, n, n},
                                  .b = {b.data(), batch * n, 1, 1},
                                  .dt = {dt.data(), batch},
                                  .abar = {abar.data(), batch * n, n, n},
                                  .bbar = {bbar.data(), batch * n, 1, 1},
                                  .method = method,
                                  .scratch = {scratch.data(), scratch.size()}};
  for (auto _ : state) Discretize(exec, args);
  state.counters["systems"] =
      benchmark::Counter(batch, benchmark::Counter::kIsIterationInvariantRate);
}

// Diagonal: the 1,536 channels of a layer of Mamba-130M, one token.
template <typename T>
void BM_DiscretizeDiagonal(benchmark::State& state) {
  const size_t batch = 1536, n = 16;
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  const std::vector<T> a = Values<T>(batch * n, -16, -1), b = Values<T>(batch * n, -1, 1);
  const std::vector<T> dt = Values<T>(batch, 0.001, 0.1);
  std::vector<T> abar(a.size()), bbar(b.size());
  const DiscretizeArgs<T> args = {.a = {a.data(), batch, n, n},
                                  .b = {b.data(), batch * n, 1, 1},
                                  .dt = {dt.data(), batch},
                                  .abar = {abar.data(), batch, n, n},
                                  .bbar = {bbar.data(), batch * n, 1, 1},
                                  .method = static_cast<DiscretizeMethod>(state.range(0))};
  for (auto _ : state) DiscretizeDiagonal(exec, args);
  SetWork(state, 4.0 * sizeof(T) * a.size(), 0);
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"method", "threads"})->UseRealTime();
  for (const int method : {0, 1, 2}) {
    for (const int threads : {1, 2}) b->Args({method, threads});
  }
}
BENCHMARK_TEMPLATE(BM_Discretize, double)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_Discretize, float)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_DiscretizeDiagonal, double)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_DiscretizeDiagonal, float)->Apply(Shapes);

}  // namespace
}  // namespace hognose::kernels
