#include "kernels/bench_support.h"
#include "kernels/read_bytes/read_bytes.h"
#include "kernels/scan/scan.h"

namespace hognose::kernels {
namespace {

constexpr ScanMethod kMethods[] = {ScanMethod::kSequential, ScanMethod::kChunked,
                                   ScanMethod::kSegmented, ScanMethod::kBlelloch};
constexpr const char* kMethodNames[] = {"sequential", "chunked", "segmented", "blelloch"};
constexpr const char* kOpNames[] = {"linear", "sum", "product", "max"};

// Bytes per second that this machine reads from memory.
double ReadRate(size_t threads) {
  static double rates[2] = {};
  double& rate = rates[threads > 1];
  if (rate > 0.0) return rate;
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  const std::vector<uint8_t> bytes(size_t{128} << 20, 1);
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(ReadBytes(exec, bytes));
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
    rate = std::max(rate, static_cast<double>(bytes.size()) / s.count());
  }
  return rate;
}

void BM_Scan(benchmark::State& state) {
  const auto op = static_cast<ScanOp>(state.range(0));
  const size_t method = state.range(1), l = state.range(2), c = state.range(3);
  const size_t threads = state.range(4);
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  const auto a = BenchValues(l * c, 0.5, 1.0), x = BenchValues(l * c, 0.9, 1.1);
  std::vector<float> y(l * c);
  std::vector<float> scratch(ScanScratch({op, 1, l, c}, kMethods[method]));
  ScanArgs args = {.op = op,
                   .method = kMethods[method],
                   .x = Series<const float>::Dense(x.data(), 1, l, c),
                   .y = Series<float>::Dense(y.data(), 1, l, c),
                   .scratch = {scratch.data(), scratch.size()}};
  if (op == ScanOp::kLinear) args.a = Series<const float>::Dense(a.data(), 1, l, c);
  for (auto _ : state) Scan(exec, args);
  state.SetLabel(std::string(kOpNames[state.range(0)]) + " " + kMethodNames[method]);
  const double elements = static_cast<double>(l * c);
  const double bytes = elements * (op == ScanOp::kLinear ? 12.0 : 8.0);
  using benchmark::Counter;
  state.counters["elements"] = Counter(elements, Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = Counter(bytes, Counter::kIsIterationInvariantRate);
  // Share of the time that reading those bytes from memory takes.
  state.counters["of_read"] =
      Counter(bytes / ReadRate(threads), Counter::kIsIterationInvariantRate);
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"op", "method", "L", "C", "threads"});
  for (const int op : {0, 1, 2, 3}) {
    for (const int64_t l : {64, 1024, 16384, 1 << 20}) {
      for (const int64_t c : {1, 8, 64, 512, 4096}) {
        if (l * c > int64_t{1} << 24 || (op > 1 && (l != 16384 || c > 64))) continue;
        for (const int threads : {1, 2}) {
          for (const int method : {0, 1, 2, 3}) b->Args({op, method, l, c, threads});
        }
      }
    }
  }
}
BENCHMARK(BM_Scan)->Apply(Shapes)->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
