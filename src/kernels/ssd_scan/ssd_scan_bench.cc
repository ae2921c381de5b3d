#include <limits>

#include "kernels/bench_support.h"
#include "kernels/ssd_scan/ssd_scan.h"

namespace hognose::kernels {
namespace {

// As in a model, a state comes from memory: so many layers take turns that no cache holds them all.
struct Operands {
  static constexpr size_t kLayers = 96;
  std::vector<float> x, b, c, dt, bias, a, d_skip, states, y, scratch;
  SsdScanArgs args;
  size_t layer = 0, state_size;

  Operands(size_t l, size_t h, size_t p, size_t n)
      : x(BenchValues(l * h * p)),
        b(BenchValues(l * n)),
        c(BenchValues(l * n)),
        dt(BenchValues(l * h, -7.0, -2.0)),
        bias(BenchValues(h)),
        a(BenchValues(h, -16.0, -1.0)),
        d_skip(BenchValues(h * p)),
        states(kLayers * h * n * p),
        y(l * h * p),
        scratch(l * 2 * h),
        state_size(h * n * p) {
    args.x = {x.data(), l, h * p, h * p};
    args.b = {b.data(), l, n, n};
    args.c = {c.data(), l, n, n};
    args.dt = {dt.data(), l, h, h};
    args.dt_bias = {bias.data(), h};
    args.a = {a.data(), h};
    args.d_skip = {d_skip.data(), h * p};
    args.dt_max = std::numeric_limits<float>::infinity();
    args.y = {y.data(), l, h * p, h * p};
    args.scratch = {scratch.data(), l, 2 * h, 2 * h};
    args.state = {nullptr, h * n, p, p};
  }
  const SsdScanArgs& Next() {
    args.state.data = states.data() + layer * state_size;
    layer = (layer + 1) % kLayers;
    return args;
  }
};

// The scan of Mamba-2-130M: 24 heads of width 64, 128 states.
void BM_SsdScan(benchmark::State& state) {
  const size_t l = state.range(0), h = 24, p = 64, n = 128;
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  Operands o(l, h, p, n);
  for (auto _ : state) SsdScan(exec, o.Next());
  SetWork(state, 8.0 * h * n * p, 5.0 * l * h * n * p);
}
BENCHMARK(BM_SsdScan)
    ->ArgNames({"L", "threads"})
    ->ArgsProduct({{1, 4, 16, 256}, {1, 2}})
    ->UseRealTime();

// The same by chunks.
void BM_SsdScanChunked(benchmark::State& state) {
  const size_t l = state.range(0), h = 24, p = 64, n = 128;
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  Operands o(l, h, p, n);
  std::vector<float> scratch(SsdScanChunkedScratch(l, h, 1, n));
  for (auto _ : state) {
    SsdScanChunked(exec, o.Next(), {scratch.data(), scratch.size()});
  }
  SetWork(state, 8.0 * h * n * p, 5.0 * l * h * n * p);
}
BENCHMARK(BM_SsdScanChunked)
    ->ArgNames({"L", "threads"})
    ->ArgsProduct({{64, 256}, {1, 2}})
    ->UseRealTime();

// Its gradient: of Mamba-2-130M's layer, and of a layer with 8 heads and 64 states.
void BM_SsdScanGrad(benchmark::State& state) {
  const size_t l = 256, h = state.range(0), p = 64, n = state.range(1);
  core::ThreadPool pool(state.range(2));
  core::Exec exec{pool};
  Operands o(l, h, p, n);
  const auto dy = BenchValues(l * h * p);
  std::vector<float> scratch(SsdScanGradScratch(l, h, p, 1, n)), dx(l * h * p), db(l * n),
      dc(l * n);
  std::vector<float> ddt(l * h), ddt_bias(h), da(h), dd_skip(h * p), dstate(h * n * p);
  const SsdScanArgs& f = o.Next();
  const SsdScanGradArgs args{.x = f.x,
                             .b = f.b,
                             .c = f.c,
                             .dt = f.dt,
                             .dt_bias = f.dt_bias,
                             .a = f.a,
                             .d_skip = f.d_skip,
                             .dt_max = f.dt_max,
                             .state = f.state,
                             .dy = {dy.data(), l, h * p, h * p},
                             .dstate = {dstate.data(), h * n, p, p},
                             .dx = {dx.data(), l, h * p, h * p},
                             .db = {db.data(), l, n, n},
                             .dc = {dc.data(), l, n, n},
                             .ddt = {ddt.data(), l, h, h},
                             .ddt_bias = {ddt_bias.data(), h},
                             .da = {da.data(), h},
                             .dd_skip = {dd_skip.data(), h * p},
                             .scratch = {scratch.data(), scratch.size()}};
  for (auto _ : state) SsdScanGrad(exec, args);
  SetWork(state, 4.0 * l * h * p, 10.0 * l * h * n * p);
}
BENCHMARK(BM_SsdScanGrad)
    ->ArgNames({"H", "N", "threads"})
    ->Args({24, 128, 1})
    ->Args({24, 128, 2})
    ->Args({8, 64, 1})
    ->Args({8, 64, 2})
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
