#include "kernels/bench_support.h"
#include "kernels/find_nonfinite/find_nonfinite.h"

namespace hognose::kernels {
namespace {

// The embedding of Mamba-130M in bf16.
void BM_FindNonFinite(benchmark::State& state) {
  core::ThreadPool pool(state.range(0));
  core::Exec exec{pool};
  const std::vector<core::BFloat16> values(size_t{50280} * 768);
  const core::TensorView view = {values.data(), core::DType::kBF16, 1, {values.size()}};
  for (auto _ : state) benchmark::DoNotOptimize(FindNonFinite(exec, view));
  SetWork(state, static_cast<double>(view.bytes()), 0.0);
}
BENCHMARK(BM_FindNonFinite)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
