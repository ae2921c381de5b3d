// Shapes of Mamba-130M (in_proj, out_proj, head), bf16 and f32 weights, 1 to 512 rows.
#include "codecs/float16.h"
#include "kernels/bench_support.h"
#include "kernels/linear/linear.h"

namespace hognose::kernels {
namespace {

void BM_Linear(benchmark::State& state, core::DType dtype, bool exact) {
  const size_t l = state.range(0), k = state.range(1), m = state.range(2);
  core::ThreadPool pool(state.range(3));
  core::Exec exec{pool};
  const auto x = BenchValues(l * k);
  const auto values = BenchValues(m * k);
  std::vector<core::BFloat16> w16(m * k);
  for (size_t i = 0; i < w16.size(); ++i) w16[i] = codecs::EncodeBF16(values[i]);
  std::vector<float> y(l * m);
  std::vector<core::BFloat16> scratch(LinearScratch(l, k));
  LinearArgs args;
  args.x = {x.data(), l, k, k};
  args.w = {dtype == core::DType::kF32 ? static_cast<const void*>(values.data()) : w16.data(),
            dtype,
            2,
            {m, k}};
  args.y = {y.data(), l, m, m};
  args.activations = PickActivations(dtype, exact);
  args.x_bf16 = {scratch.data(), scratch.size()};
  for (auto _ : state) Linear(exec, args);
  SetWork(state, static_cast<double>(args.w.bytes()), 2.0 * l * k * m);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"L", "K", "M", "threads"})->UseRealTime();
  for (const int threads : {1, 2}) {
    for (const int l : {1, 4, 16, 128, 512}) {
      bench->Args({l, 768, 3072, threads});
      bench->Args({l, 1536, 768, threads});
    }
    bench->Args({1, 768, 50280, threads});
  }
}
BENCHMARK_CAPTURE(BM_Linear, bf16_auto, core::DType::kBF16, false)->Apply(Shapes);
BENCHMARK_CAPTURE(BM_Linear, bf16_exact, core::DType::kBF16, true)->Apply(Shapes);
BENCHMARK_CAPTURE(BM_Linear, f32, core::DType::kF32, true)->Apply(Shapes);

}  // namespace
}  // namespace hognose::kernels
