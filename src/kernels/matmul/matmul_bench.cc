#include "kernels/bench_support.h"
#include "kernels/matmul/matmul.h"

namespace hognose::kernels {
namespace {

// The two products of in_proj's backward pass, for 256 rows: du = dy w and dw += dy^T u.
void BM_Matmul(benchmark::State& state) {
  const size_t rows = 256, in = state.range(0), out = state.range(1);
  const bool weights = state.range(2) == 1;
  core::ThreadPool pool(state.range(4));
  core::Exec exec{pool};
  const auto dy = BenchValues(rows * out), u = BenchValues(rows * in), w = BenchValues(out * in);
  std::vector<float> c(std::max(rows, out) * in), scratch(MatmulScratch(std::max(rows, out), in));
  MatmulArgs args;
  args.a = {dy.data(), rows, out, out};
  args.transpose_a = weights;
  args.b = weights ? core::Mat<const float>{u.data(), rows, in, in}
                   : core::Mat<const float>{w.data(), out, in, in};
  args.c = {c.data(), weights ? out : rows, in, in};
  args.accumulate = weights;
  args.round_bf16 = state.range(3) == 1;
  args.scratch = {scratch.data(), scratch.size()};
  for (auto _ : state) Matmul(exec, args);
  SetWork(state, 4.0 * out * in, 2.0 * rows * in * out);
}
BENCHMARK(BM_Matmul)
    ->ArgNames({"in", "out", "dw", "bf16", "threads"})
    ->ArgsProduct({{256, 768}, {1160, 3352}, {0, 1}, {0, 1}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
