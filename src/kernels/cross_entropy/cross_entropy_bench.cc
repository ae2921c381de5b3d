#include "kernels/bench_support.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace hognose::kernels {
namespace {

// The vocabulary of Mamba, and bytes. The logits stay, so that every round sees the same ones; the
// gradient costs one more pass over the row.
void BM_CrossEntropy(benchmark::State& state) {
  const size_t l = 64, v = state.range(0);
  const bool gradient = state.range(1) != 0;
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  auto logits = BenchValues(l * v);
  const std::vector<int32_t> targets(l, 17);
  std::vector<double> losses(l);
  const CrossEntropyArgs args = {.logits = {logits.data(), l, v, v},
                                 .targets = targets,
                                 .losses = {losses.data(), l},
                                 .gradient = gradient};
  for (auto _ : state) CrossEntropy(exec, args);
  SetWork(state, 4.0 * l * v * (gradient ? 5 : 2), 20.0 * l * v);
}
BENCHMARK(BM_CrossEntropy)->ArgNames({"V", "gradient"})->ArgsProduct({{256, 50280}, {0, 1}});

}  // namespace
}  // namespace hognose::kernels
