#include "kernels/bench_support.h"
#include "kernels/selective_scan/selective_scan.h"

namespace hognose::kernels {
namespace {

// The scan of Mamba-130M: 1,536 channels, 16 states; and a narrower one.
void BM_SelectiveScan(benchmark::State& state) {
  const size_t l = state.range(0), e = state.range(2), n = 16;
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  const auto dt = BenchValues(l * e, -7.0, -2.0), x = BenchValues(l * e), z = BenchValues(l * e);
  const auto b = BenchValues(l * n), c = BenchValues(l * n), a = BenchValues(n * e, -16.0, -1.0);
  const auto d_skip = BenchValues(e);
  std::vector<float> h(n * e), y(l * e);
  SelectiveScanArgs args;
  args.dt = {dt.data(), l, e, e};
  args.x = {x.data(), l, e, e};
  args.z = {z.data(), l, e, e};
  args.b = {b.data(), l, n, n};
  args.c = {c.data(), l, n, n};
  args.a = {a.data(), n, e, e};
  args.d_skip = {d_skip.data(), e};
  args.state = {h.data(), n, e, e};
  args.y = {y.data(), l, e, e};
  for (auto _ : state) SelectiveScan(exec, args);
  SetWork(state, 4.0 * e * (4.0 * l + 3 * n), 20.0 * l * e * n);
}
BENCHMARK(BM_SelectiveScan)
    ->ArgNames({"L", "threads", "E"})
    ->Args({1, 1, 1536})
    ->Args({256, 1, 1536})
    ->Args({256, 2, 1536})
    ->Args({256, 1, 512})
    ->UseRealTime();

// The same scan and a narrower one backwards.
void BM_SelectiveScanGrad(benchmark::State& state) {
  const size_t l = state.range(0), e = state.range(2), n = 16;
  core::ThreadPool pool(state.range(1));
  core::Exec exec{pool};
  const auto dt = BenchValues(l * e, -7.0, -2.0), x = BenchValues(l * e), z = BenchValues(l * e);
  const auto b = BenchValues(l * n), c = BenchValues(l * n), a = BenchValues(n * e, -16.0, -1.0);
  const auto d_skip = BenchValues(e), h = BenchValues(n * e), dy = BenchValues(l * e);
  std::vector<float> dstate(n * e), ddt(l * e), dx(l * e), dz(l * e), db(l * n), dc(l * n);
  std::vector<float> da(n * e), dd_skip(e), scratch(SelectiveScanGradScratch(l, e, n));
  const SelectiveScanGradArgs args = {.dt = {dt.data(), l, e, e},
                                      .x = {x.data(), l, e, e},
                                      .z = {z.data(), l, e, e},
                                      .b = {b.data(), l, n, n},
                                      .c = {c.data(), l, n, n},
                                      .a = {a.data(), n, e, e},
                                      .d_skip = {d_skip.data(), e},
                                      .state = {h.data(), n, e, e},
                                      .dy = {dy.data(), l, e, e},
                                      .dstate = {dstate.data(), n, e, e},
                                      .ddt = {ddt.data(), l, e, e},
                                      .dx = {dx.data(), l, e, e},
                                      .dz = {dz.data(), l, e, e},
                                      .db = {db.data(), l, n, n},
                                      .dc = {dc.data(), l, n, n},
                                      .da = {da.data(), n, e, e},
                                      .dd_skip = {dd_skip.data(), e},
                                      .scratch = {scratch.data(), scratch.size()}};
  for (auto _ : state) SelectiveScanGrad(exec, args);
  SetWork(state, 4.0 * e * (7.0 * l + 6 * n), 60.0 * l * e * n);
}
BENCHMARK(BM_SelectiveScanGrad)
    ->ArgNames({"L", "threads", "E"})
    ->Args({256, 1, 1536})
    ->Args({256, 2, 1536})
    ->Args({256, 1, 512})
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
