#include "kernels/bench_support.h"
#include "kernels/causal_conv1d/causal_conv1d.h"

namespace hognose::kernels {
namespace {

// The convolution of Mamba-2-130M: 1,792 channels, 4 taps.
void BM_CausalConv1d(benchmark::State& state) {
  const size_t l = state.range(0), c = 1792, k = 4;
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const auto x = BenchValues(l * c), w = BenchValues(k * c), bias = BenchValues(c);
  std::vector<float> window(k * c), y(l * c);
  CausalConv1dArgs args;
  args.x = {x.data(), l, c, c};
  args.w = {w.data(), k, c, c};
  args.bias = {bias.data(), c};
  args.window = {window.data(), k, c, c};
  args.y = {y.data(), l, c, c};
  for (auto _ : state) CausalConv1d(exec, args);
  SetWork(state, 4.0 * c * (2.0 * l + 3 * k), 2.0 * l * c * k);
}
BENCHMARK(BM_CausalConv1d)->ArgName("L")->Arg(1)->Arg(16)->Arg(256);

void BM_CausalConv1dGrad(benchmark::State& state) {
  const size_t l = state.range(0), c = 1792, k = 4;
  core::ThreadPool pool(1);
  core::Exec exec{pool};
  const auto x = BenchValues(l * c), w = BenchValues(k * c), bias = BenchValues(c);
  const auto window = BenchValues(k * c), dy = BenchValues(l * c);
  std::vector<float> dx(l * c), dw(k * c), dbias(c), dwindow(k * c);
  std::vector<float> scratch(CausalConv1dGradScratch(k, c));
  const CausalConv1dGradArgs args = {.x = {x.data(), l, c, c},
                                     .w = {w.data(), k, c, c},
                                     .bias = {bias.data(), c},
                                     .window = {window.data(), k, c, c},
                                     .dy = {dy.data(), l, c, c},
                                     .dx = {dx.data(), l, c, c},
                                     .dw = {dw.data(), k, c, c},
                                     .dbias = {dbias.data(), c},
                                     .dwindow = {dwindow.data(), k, c, c},
                                     .scratch = {scratch.data(), scratch.size()}};
  for (auto _ : state) CausalConv1dGrad(exec, args);
  SetWork(state, 4.0 * c * (3.0 * l + 6 * k), 6.0 * l * c * k);
}
BENCHMARK(BM_CausalConv1dGrad)->ArgName("L")->Arg(16)->Arg(256);

}  // namespace
}  // namespace hognose::kernels
