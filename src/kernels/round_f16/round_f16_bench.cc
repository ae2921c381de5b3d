#include "kernels/bench_support.h"
#include "kernels/round_f16/round_f16.h"

namespace hognose::kernels {
namespace {

void BM_RoundF16(benchmark::State& state) {
  const size_t rows = 256, cols = state.range(0);
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const auto x = BenchValues(rows * cols);
  std::vector<float> y(rows * cols);
  for (auto _ : state) RoundF16(exec, {{x.data(), rows, cols, cols}, {y.data(), rows, cols, cols}});
  SetWork(state, 8.0 * rows * cols, 0.0);
}
BENCHMARK(BM_RoundF16)->ArgName("cols")->Arg(256)->Arg(1160)->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
