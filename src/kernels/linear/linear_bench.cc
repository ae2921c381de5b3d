// Shapes of Mamba-130M (in_proj, out_proj, head), weights of every type, 1 to 512 rows.
#include <cstring>

#include "codecs/float16.h"
#include "kernels/bench_support.h"
#include "kernels/linear/linear.h"

namespace hognose::kernels {
namespace {

// Random weights as they are stored.
struct Weights {
  std::vector<uint8_t> values;
  std::vector<core::BFloat16> scales;
  codecs::WeightMatrix view;

  Weights(core::DType dtype, size_t m, size_t k) : values(m * k * core::Bytes(dtype)) {
    const auto f32 = BenchValues(m * k);
    for (size_t i = 0; i < m * k; ++i) {
      const core::BFloat16 bf16 = codecs::EncodeBF16(f32[i]);
      if (dtype == core::DType::kF32) std::memcpy(&values[4 * i], &f32[i], 4);
      if (dtype == core::DType::kBF16) std::memcpy(&values[2 * i], &bf16, 2);
    }
    view = core::TensorView{values.data(), dtype, 2, {m, k}};
  }
  Weights(codecs::Encoding encoding, size_t m, size_t k)
      : values(m * codecs::RowBytes(encoding, k, 64)),
        scales(m * (codecs::PaddedColumns(k, 64) / 64), core::BFloat16{0x3C00}) {
    core::Rng rng(1);
    for (auto& v : values) v = static_cast<uint8_t>(rng.Next() >> 56);
    view.encoding = encoding;
    view.rows = m;
    view.cols = k;
    view.group = 64;
    view.values = {values.data(), core::DType::kU8, 2, {m, values.size() / m}};
    view.scales = {scales.data(), core::DType::kBF16, 2, {m, scales.size() / m}};
  }
};

template <typename Stored>  // DType or Encoding
void BM_Linear(benchmark::State& state, Stored stored, bool exact) {
  const size_t l = state.range(0), k = state.range(1), m = state.range(2);
  core::ThreadPool pool(state.range(3));
  core::Exec exec{pool};
  const auto x = BenchValues(l * k);
  const Weights w(stored, m, k);
  std::vector<float> y(l * m);
  std::vector<uint8_t> scratch(LinearScratch(l, k));
  LinearArgs args;
  args.x = {x.data(), l, k, k};
  args.w = w.view;
  args.y = {y.data(), l, m, m};
  args.activations = PickActivations(args.w, exact);
  args.scratch = {scratch.data(), scratch.size()};
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
BENCHMARK_CAPTURE(BM_Linear, int8, codecs::Encoding::kInt8, false)->Apply(Shapes);
BENCHMARK_CAPTURE(BM_Linear, int4, codecs::Encoding::kInt4, false)->Apply(Shapes);

}  // namespace
}  // namespace hognose::kernels
