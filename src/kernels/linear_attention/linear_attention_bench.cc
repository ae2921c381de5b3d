#include "kernels/bench_support.h"
#include "kernels/linear_attention/linear_attention.h"

namespace hognose::kernels {
namespace {

// B sequences of L steps, 8 heads of N = P = 64.
struct Operands {
  static constexpr size_t kHeads = 8, kWidth = 64, kAll = kHeads * kWidth;
  size_t rows;
  std::vector<size_t> starts;
  std::vector<float> q, k, v, log_decay, o, normaliser, d_o, dq, dk, dv, dlog_decay, scratch;

  Operands(size_t batch, size_t steps)
      : rows(batch * steps),
        q(BenchValues(rows * kAll)),
        k(BenchValues(rows * kAll)),
        v(BenchValues(rows * kAll)),
        log_decay(BenchValues(rows * kHeads, -0.1, 0.0)),
        o(rows * kAll),
        normaliser(rows * kHeads),
        d_o(BenchValues(rows * kAll)),
        dq(rows * kAll),
        dk(rows * kAll),
        dv(rows * kAll),
        dlog_decay(rows * kHeads) {
    for (size_t b = 0; b <= batch; ++b) starts.push_back(b * steps);
  }
  core::Mat<float> Wide(std::vector<float>& of) const { return {of.data(), rows, kAll, kAll}; }
  core::Mat<float> Narrow(std::vector<float>& of) const {
    return {of.data(), rows, kHeads, kHeads};
  }
};

enum Form { kPlain, kDecay, kNormalised, kAllSteps };

LinearAttentionArgs Forward(Operands& o, int form) {
  LinearAttentionArgs a{.q = o.Wide(o.q),
                        .k = o.Wide(o.k),
                        .v = o.Wide(o.v),
                        .heads = Operands::kHeads,
                        .starts = {o.starts.data(), o.starts.size()},
                        .o = o.Wide(o.o)};
  if (form == kDecay) a.log_decay = o.Narrow(o.log_decay);
  if (form == kNormalised) {
    a.normalised = true;
    a.feature_map = FeatureMap::kEluPlusOne;
    a.normaliser = o.Narrow(o.normaliser);
  }
  a.causal = form != kAllSteps;
  o.scratch.resize(std::max(o.scratch.size(), LinearAttentionScratch(a)));
  a.scratch = {o.scratch.data(), o.scratch.size()};
  return a;
}

LinearAttentionGradArgs Backward(Operands& o, int form) {
  const LinearAttentionArgs f = Forward(o, form);
  LinearAttentionGradArgs a{.q = f.q,
                            .k = f.k,
                            .v = f.v,
                            .log_decay = f.log_decay,
                            .heads = f.heads,
                            .starts = f.starts,
                            .feature_map = f.feature_map,
                            .causal = f.causal,
                            .normalised = f.normalised,
                            .o = f.o,
                            .normaliser = f.normaliser,
                            .d_o = o.Wide(o.d_o),
                            .dq = o.Wide(o.dq),
                            .dk = o.Wide(o.dk),
                            .dv = o.Wide(o.dv)};
  if (form == kDecay) a.dlog_decay = o.Narrow(o.dlog_decay);
  o.scratch.resize(std::max(o.scratch.size(), LinearAttentionGradScratch(a)));
  a.scratch = {o.scratch.data(), o.scratch.size()};
  return a;
}

double Operations(const Operands& o, int form) {
  const double width = Operands::kWidth, chunk = form == kAllSteps ? 0.0 : 64.0;
  return o.rows * Operands::kHeads * (4.0 * width * width + 2.0 * chunk * width);
}

void BM_LinearAttention(benchmark::State& state) {
  core::ThreadPool pool(state.range(3));
  core::Exec exec{pool};
  Operands o(state.range(0), state.range(1));
  const LinearAttentionArgs args = Forward(o, static_cast<int>(state.range(2)));
  for (auto _ : state) LinearAttention(exec, args);
  SetWork(state, 16.0 * o.q.size(), Operations(o, static_cast<int>(state.range(2))));
}
BENCHMARK(BM_LinearAttention)
    ->ArgNames({"B", "L", "form", "threads"})
    ->ArgsProduct({{32}, {256}, {kPlain, kDecay, kNormalised, kAllSteps}, {1, 2}})
    ->ArgsProduct({{1}, {16384}, {kPlain, kDecay, kNormalised}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// Forward and backward.
void BM_LinearAttentionTraining(benchmark::State& state) {
  core::ThreadPool pool(state.range(3));
  core::Exec exec{pool};
  Operands o(state.range(0), state.range(1));
  const int form = static_cast<int>(state.range(2));
  const LinearAttentionGradArgs backward = Backward(o, form);
  const LinearAttentionArgs forward = Forward(o, form);
  for (auto _ : state) {
    LinearAttention(exec, forward);
    LinearAttentionGrad(exec, backward);
  }
  SetWork(state, 48.0 * o.q.size(), 3.0 * Operations(o, form));
}
BENCHMARK(BM_LinearAttentionTraining)
    ->ArgNames({"B", "L", "form", "threads"})
    ->ArgsProduct({{32}, {256}, {kPlain, kDecay, kNormalised, kAllSteps}, {1, 2}})
    ->ArgsProduct({{1}, {16384}, {kPlain}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace hognose::kernels
