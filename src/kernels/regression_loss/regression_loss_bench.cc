#include "kernels/bench_support.h"
#include "kernels/regression_loss/regression_loss.h"

namespace hognose::kernels {
namespace {

// A batch of 32 sequences of 256 steps with 7 outputs, a robot arm's joints.
void BM_RegressionLoss(benchmark::State& state) {
  const size_t l = 32 * 256, o = 7;
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const auto predictions = BenchValues(l * o), targets = BenchValues(l * o + 1);
  std::vector<float> gradient(l * o);
  std::vector<double> losses(l);
  const RegressionLossArgs args = {
      .predictions = {predictions.data(), l, o, o},
      .targets = {targets.data(), l, o, o},
      .gradient = {gradient.data(), l, o, o},
      .kind = state.range(0) == 0 ? RegressionLossKind::kSquaredError : RegressionLossKind::kHuber,
      .losses = {losses.data(), l}};
  for (auto _ : state) RegressionLoss(exec, args);
  SetWork(state, 12.0 * l * o + 8.0 * l, 6.0 * l * o);
}
BENCHMARK(BM_RegressionLoss)->ArgName("huber")->Arg(0)->Arg(1);

}  // namespace
}  // namespace hognose::kernels
