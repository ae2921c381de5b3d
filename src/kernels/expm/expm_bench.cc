#include <cmath>

#include "kernels/bench_support.h"
#include "kernels/expm/expm.h"

namespace hognose::kernels {
namespace {

// Entries as of matrices with 1-norms of about sqrt(n): f64 has order 13 and one or two squarings.
template <typename T>
std::vector<T> Matrices(size_t batch, size_t n) {
  const double range = std::sqrt(3.0 / static_cast<double>(n));
  const std::vector<float> values = BenchValues(batch * n * n, -range, range);
  return {values.begin(), values.end()};
}

template <typename T>
void BM_Expm(benchmark::State& state) {
  const size_t batch = state.range(0), n = state.range(1);
  core::ThreadPool pool(state.range(2));
  core::Exec exec{pool};
  const std::vector<T> a = Matrices<T>(batch, n);
  std::vector<T> y(a.size()), scratch(ExpmScratch<T>(n, batch));
  const ExpmArgs<T> args = {.a = {a.data(), batch * n, n, n},
                            .y = {y.data(), batch * n, n, n},
                            .scratch = {scratch.data(), scratch.size()},
                            .layout = static_cast<ExpmLayout>(state.range(3))};
  for (auto _ : state) Expm(exec, args);
  // The products of the highest order, LU and one squaring.
  const double products = sizeof(T) == sizeof(double) ? 6 + 4 / 3.0 + 1 : 4 + 4 / 3.0;
  SetWork(state, 2.0 * sizeof(T) * a.size(), products * 2.0 * batch * n * n * n);
}

template <typename T>
void BM_ExpmGrad(benchmark::State& state) {
  const size_t batch = state.range(0), n = state.range(1);
  core::ThreadPool pool(state.range(2));
  core::Exec exec{pool};
  const std::vector<T> a = Matrices<T>(batch, n), dy = Matrices<T>(batch, n);
  std::vector<T> da(a.size()), scratch(ExpmGradScratch<T>(n, batch));
  const ExpmGradArgs<T> args = {.a = {a.data(), batch * n, n, n},
                                .dy = {dy.data(), batch * n, n, n},
                                .da = {da.data(), batch * n, n, n},
                                .scratch = {scratch.data(), scratch.size()},
                                .layout = static_cast<ExpmLayout>(state.range(3))};
  for (auto _ : state) ExpmGrad(exec, args);
  const double products = sizeof(T) == sizeof(double) ? 6 + 4 / 3.0 + 1 : 4 + 4 / 3.0;
  SetWork(state, 3.0 * sizeof(T) * a.size(), products * 6.0 * batch * n * n * n);
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"B", "n", "threads", "layout"})->UseRealTime();
  for (const int threads : {1, 2}) b->Args({1000, 16, threads, 0});
  for (const int n : {4, 5, 8, 16, 17, 24}) {
    for (const int layout : {1, 2}) b->Args({128, n, 1, layout});
  }
  for (const int n : {32, 64, 128, 256}) b->Args({4, n, 1, 0});
}
BENCHMARK_TEMPLATE(BM_Expm, double)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_Expm, float)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_ExpmGrad, double)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_ExpmGrad, float)->Apply(Shapes);

}  // namespace
}  // namespace hognose::kernels
