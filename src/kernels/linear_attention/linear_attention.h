// linear_attention: attention with a kernel of features in place of softmax, as a recurrence.
//
// Formula    for each sequence and head, with f the feature map and S_0 the initial state or 0:
//            S_t[n, p] = exp(g_t) S_{t-1}[n, p] + f(k_t)[n] v_t[p]     g: log_decay, or 0
//            o_t[p] = scale sum_n f(q_t)[n] S_t[n, p]
//            `normalised`: S has one more column, as if v had a last column of ones, and
//            o_t[p] = num_t[p] / normaliser_t, num_t as o_t above,
//            normaliser_t = scale sum_n f(q_t)[n] S_t[n, P] + 1e-10.
//            Not `causal`: every o_t reads the last state of its sequence; without log_decay.
// Operands   q, k [L, H N]; v, o [L, H P]; log_decay [L, H], finite, at most 0; normaliser [L, H],
//            written, for the gradient; states [B H N, P] or, normalised, [B H N, P + 1] (row
//            (b H + h) N + n). f32; rows of any stride. L rows of all sequences one after the
//            other: sequence b is rows [starts[b], starts[b + 1]), none is no row; without
//            `starts` there is one sequence of all rows. o aliases no input, the final state may
//            be the initial one. L < 2^32; 1 <= N, P <= kMaxLinearAttentionWidth.
// Scratch    LinearAttentionScratch floats: where spans of chunks run at once, a state for each, of
//            some hundred steps; the gradient has it for sequences longer than a span. Nothing of
//            size L L or L N P.
// Threads    sequences x heads; spans of a sequence too where these are few
//            (LinearAttentionInSpans, of the shape). Same bits for any thread count.
// Errors     none; shapes are checked by HOGNOSE_DCHECK.
// Accuracy   by chunks of 64 steps: a term of a sum has relative error (N + 80 + 2 chunks) eps, and
//            with decay |its exponent| eps more. Where a piece begins changes rounding only.
// Cost       4 N P + 64 (N + P) operations per (t, head), its gradient 10 N P + 64 (3 N + 2 P); in
//            spans 2 N P and 4 N P more. Not causal 4 N P and 10 N P.
// Source     Katharopoulos et al. 2020, "Transformers are RNNs", eq. 4, 18-20; Yang et al. 2024,
//            "Gated Linear Attention Transformers", section 4: chunks. Oracle: LinearAttentionRef,
//            step by step, double.
#pragma once

#include "core/exec.h"
#include "core/tensor.h"

namespace hognose::kernels {

inline constexpr size_t kMaxLinearAttentionWidth = 256;  // N and P

enum class FeatureMap { kIdentity, kRelu, kEluPlusOne };  // elu(x) + 1: x + 1 above 0, else exp(x)

struct LinearAttentionArgs {
  core::Mat<const float> q = {};
  core::Mat<const float> k = {};
  core::Mat<const float> v = {};
  core::Mat<const float> log_decay = {};  // no rows: no decay
  size_t heads = 1;
  core::Vec<const size_t> starts = {};
  FeatureMap feature_map = FeatureMap::kIdentity;
  float scale = 0.0f;  // 0: 1 / sqrt(N)
  bool causal = true;
  bool normalised = false;
  core::Mat<const float> initial_state = {};  // no rows: 0
  core::Mat<float> final_state = {};          // no rows: not wanted
  core::Mat<float> o = {};
  core::Mat<float> normaliser = {};  // normalised only; no rows: not wanted
  core::Vec<float> scratch = {};
};

size_t LinearAttentionScratch(const LinearAttentionArgs& args);
void LinearAttention(core::Exec& exec, const LinearAttentionArgs& args) noexcept;

void LinearAttentionRef(const LinearAttentionArgs& args);

// The gradient. Operands up to initial_state as they were given to LinearAttention; states are
// computed again.
struct LinearAttentionGradArgs {
  core::Mat<const float> q = {};
  core::Mat<const float> k = {};
  core::Mat<const float> v = {};
  core::Mat<const float> log_decay = {};
  size_t heads = 1;
  core::Vec<const size_t> starts = {};
  FeatureMap feature_map = FeatureMap::kIdentity;
  float scale = 0.0f;
  bool causal = true;
  bool normalised = false;
  core::Mat<const float> initial_state = {};
  core::Mat<const float> o = {};           // normalised only: what LinearAttention wrote
  core::Mat<const float> normaliser = {};  // normalised only: the same
  core::Mat<const float> d_o = {};         // [L, H P]
  // As the states: of the final state; returns that of the initial one. No rows: 0, not wanted.
  core::Mat<float> dstate = {};
  core::Mat<float> dq = {};          // [L, H N], written
  core::Mat<float> dk = {};          // [L, H N], written
  core::Mat<float> dv = {};          // [L, H P], written
  core::Mat<float> dlog_decay = {};  // [L, H], written; with log_decay only
  core::Vec<float> scratch = {};     // LinearAttentionGradScratch floats
};

size_t LinearAttentionGradScratch(const LinearAttentionGradArgs& args);
void LinearAttentionGrad(core::Exec& exec, const LinearAttentionGradArgs& args) noexcept;

void LinearAttentionGradRef(const LinearAttentionGradArgs& args);

// Whether spans of chunks run at once, each from a first state that a pass before has found: for
// few pairs of sequence and head.
bool LinearAttentionInSpans(size_t sequences, size_t heads, size_t spans);

}  // namespace hognose::kernels
