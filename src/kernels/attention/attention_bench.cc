#include "kernels/attention/attention.h"
#include "kernels/bench_support.h"

namespace hognose::kernels {
namespace {

struct Operands {
  std::vector<float> q, k, v, y, scratch;
  AttentionArgs args;

  Operands(size_t queries, size_t keys, size_t heads, size_t key_heads, size_t width)
      : q(BenchValues(queries * heads * width)),
        k(BenchValues(keys * key_heads * width)),
        v(BenchValues(keys * key_heads * width, -1.0, 0.5)),
        y(q.size()),
        scratch(AttentionScratch(queries, keys, heads, width)) {
    args.q = {q.data(), queries, heads * width, heads * width};
    args.k = {k.data(), keys, key_heads * width, key_heads * width};
    args.v = {v.data(), keys, key_heads * width, key_heads * width};
    args.heads = heads;
    args.key_heads = key_heads;
    args.y = {y.data(), queries, heads * width, heads * width};
    args.scratch = {scratch.data(), scratch.size()};
  }
};

// A prompt of L tokens, causal: half of L x L.
void BM_AttentionPrompt(benchmark::State& state) {
  const size_t l = state.range(0), heads = 8, key_heads = state.range(1), p = state.range(2);
  core::ThreadPool pool(state.range(3));
  core::Exec exec{pool};
  Operands o(l, l, heads, key_heads, p);
  for (auto _ : state) Attention(exec, o.args);
  SetWork(state, 8.0 * l * (heads + key_heads) * p, 2.0 * l * (l + 1) * heads * p);
}
BENCHMARK(BM_AttentionPrompt)
    ->ArgNames({"L", "G", "P", "threads"})
    ->ArgsProduct({{4096}, {8, 2}, {64, 128}, {1, 2}})
    ->Args({512, 8, 64, 2})
    ->UseRealTime();

// One token behind a long cache: its bytes are the cost.
void BM_AttentionStep(benchmark::State& state) {
  const size_t keys = state.range(0), heads = 8, key_heads = state.range(1), p = 64;
  core::ThreadPool pool(state.range(2));
  core::Exec exec{pool};
  Operands o(1, keys, heads, key_heads, p);
  for (auto _ : state) Attention(exec, o.args);
  SetWork(state, 8.0 * keys * key_heads * p, 4.0 * keys * heads * p);
}
BENCHMARK(BM_AttentionStep)
    ->ArgNames({"keys", "G", "threads"})
    ->ArgsProduct({{128, 16384}, {8, 2}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
