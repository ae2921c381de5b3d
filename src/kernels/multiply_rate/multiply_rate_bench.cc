#include "kernels/bench_support.h"
#include "kernels/multiply_rate/multiply_rate.h"

namespace hognose::kernels {
namespace {

void BM_MultiplyRate(benchmark::State& state) {
  const auto type = static_cast<MultiplyType>(state.range(0));
  constexpr uint64_t kRounds = 10000;
  int x = 1, y = 1;
  benchmark::DoNotOptimize(x);
  for (auto _ : state) benchmark::DoNotOptimize(MultiplyRate(type, kRounds, x, y));
  SetWork(state, 0.0, UnitFor(type).operations() * kRounds);
}
BENCHMARK(BM_MultiplyRate)->ArgName("type")->DenseRange(0, kMultiplyTypes.size() - 1);

}  // namespace
}  // namespace hognose::kernels
