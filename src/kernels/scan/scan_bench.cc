#include <algorithm>
#include <chrono>
#include <string>

#include "core/arena.h"
#include "core/fp_env.h"
#include "kernels/bench_support.h"
#include "kernels/read_bytes/read_bytes.h"
#include "kernels/scan/scan.h"

namespace hognose::kernels {
namespace {

constexpr const char* kOpNames[] = {"linear", "sum", "product", "max"};
constexpr const char* kMethodNames[] = {"auto", "sequential", "chunked", "segmented", "blelloch"};
constexpr size_t kMaxElements = size_t{1} << 24;

// Four operands of the largest shape, filled once.
core::Vec<float> Operand(size_t which) {
  static core::Vec<float> operands[4] = {};
  static core::Arena arena = [] {
    auto memory = core::Arena::Allocate(4 * kMaxElements * sizeof(float));
    HOGNOSE_CHECK(memory.ok());
    core::Arena a = std::move(*memory);
    for (auto& operand : operands) {
      operand = a.NewVec<float>(kMaxElements);
      // Coefficients of a decay, near 1, so that products neither vanish nor overflow at once.
      for (size_t i = 0; i < kMaxElements; ++i) operand[i] = i % 2 == 0 ? 0.75f : 1.25f;
    }
    return a;
  }();
  return operands[which];
}

// Bytes per second that `threads` threads read from memory.
double ReadRate(size_t threads) {
  static double rates[2] = {};
  double& rate = rates[threads > 1];
  if (rate > 0.0) return rate;
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(Operand(0).data),
                                       kMaxElements * sizeof(float));
  for (int i = 0; i < 9; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(ReadBytes(exec, bytes));
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
    rate = std::max(rate, static_cast<double>(bytes.size()) / s.count());
  }
  return rate;
}

// Elements and bytes per second, and these as a share of what the machine reads from memory: above
// 1 where operands come from a cache.
void SetRates(benchmark::State& state, double elements, double operands, size_t threads) {
  using benchmark::Counter;
  const double bytes = elements * operands * sizeof(float);
  state.counters["elements"] = Counter(elements, Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = Counter(bytes, Counter::kIsIterationInvariantRate);
  state.counters["of_read"] =
      Counter(bytes / ReadRate(threads), Counter::kIsIterationInvariantRate);
}

void SetNames(benchmark::State& state) {
  state.SetLabel(std::string(kOpNames[state.range(0)]) + " " + kMethodNames[state.range(1)]);
}

// Arguments: operator, method, L, C, threads.
void BM_Scan(benchmark::State& state) {
  const core::FlushDenormals flush;
  const auto op = static_cast<ScanOp>(state.range(0));
  const auto method = static_cast<ScanMethod>(state.range(1));
  const size_t l = state.range(2), c = state.range(3), threads = state.range(4);
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  std::vector<float> scratch(ScanScratch({op, 1, l, c}, method));
  ScanArgs args = {.op = op,
                   .method = method,
                   .x = Series<const float>::Dense(Operand(0).data, 1, l, c),
                   .y = Series<float>::Dense(Operand(1).data, 1, l, c),
                   .scratch = {scratch.data(), scratch.size()}};
  const bool linear = op == ScanOp::kLinear;
  if (linear) args.a = Series<const float>::Dense(Operand(2).data, 1, l, c);
  for (auto _ : state) Scan(exec, args);
  SetNames(state);
  SetRates(state, static_cast<double>(l * c), linear ? 3.0 : 2.0, threads);
}

void BM_ScanGrad(benchmark::State& state) {
  const core::FlushDenormals flush;
  const auto op = static_cast<ScanOp>(state.range(0));
  const auto method = static_cast<ScanMethod>(state.range(1));
  const size_t l = state.range(2), c = state.range(3), threads = state.range(4);
  core::ThreadPool pool(threads);
  core::Exec exec{pool};
  std::vector<float> scratch(ScanGradScratch({op, 1, l, c}, method)), da(l * c);
  const auto input = [&](size_t i) { return Series<const float>::Dense(Operand(i).data, 1, l, c); };
  ScanGradArgs args = {.op = op,
                       .method = method,
                       .x = input(0),
                       .y = input(0),
                       .dy = input(3),
                       .dx = Series<float>::Dense(Operand(1).data, 1, l, c),
                       .scratch = {scratch.data(), scratch.size()}};
  const bool linear = op == ScanOp::kLinear;
  if (linear) args.a = input(2);
  if (linear) args.da = Series<float>::Dense(da.data(), 1, l, c);
  for (auto _ : state) ScanGrad(exec, args);
  SetNames(state);
  SetRates(state, static_cast<double>(l * c),
           linear               ? 5.0
           : op == ScanOp::kSum ? 2.0
                                : 4.0,
           threads);
}

// The recurrence and the sum over all lengths and widths; the others differ in arithmetic only.
void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"op", "method", "L", "C", "threads"})->UseRealTime();
  for (const int64_t op : {0, 1, 2, 3}) {
    for (const int64_t l : {64, 1024, 16384, 131072, 1 << 20}) {
      for (const int64_t c : {1, 8, 64, 512, 4096}) {
        if (l * c > static_cast<int64_t>(kMaxElements) || (op > 1 && c > 1)) continue;
        for (const int64_t threads : {1, 2}) {
          for (const int64_t method : {1, 2, 3, 4}) b->Args({op, method, l, c, threads});
        }
      }
    }
  }
}
BENCHMARK(BM_Scan)->Apply(Shapes);

void GradShapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"op", "method", "L", "C", "threads"})->UseRealTime();
  for (const int64_t op : {0, 1, 2, 3}) {
    for (const auto& [l, c] : {std::pair<int64_t, int64_t>{1 << 20, 1}, {1024, 512}}) {
      for (const int64_t threads : {1, 2}) b->Args({op, 0, l, c, threads});
    }
  }
}
BENCHMARK(BM_ScanGrad)->Apply(GradShapes);

}  // namespace
}  // namespace hognose::kernels
