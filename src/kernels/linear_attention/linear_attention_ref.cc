// The oracles of linear_attention: step by step, in double; all states are kept for the gradient.
#include <cmath>
#include <vector>

#include "kernels/linear_attention/attention_plan.h"
#include "kernels/linear_attention/linear_attention.h"

namespace hognose::kernels {
namespace {

using Matrix = std::vector<double>;

double Feature(FeatureMap map, double x) {
  if (map == FeatureMap::kRelu) return x > 0.0 ? x : 0.0;
  if (map == FeatureMap::kEluPlusOne) return x > 0.0 ? x + 1.0 : std::exp(x);
  return x;
}

double Slope(FeatureMap map, double x) {
  if (map == FeatureMap::kRelu) return x > 0.0 ? 1.0 : 0.0;
  if (map == FeatureMap::kEluPlusOne) return x > 0.0 ? 1.0 : std::exp(x);
  return 1.0;
}

// One head of one sequence: features, values with their column of ones, and every state.
template <typename Args>
struct HeadRef {
  const Args& a;
  internal::AttentionShape<Args> shape{a};
  size_t sequence, h;
  size_t begin = a.starts.size == 0 ? 0 : a.starts[sequence];
  size_t steps = (a.starts.size == 0 ? a.q.rows : a.starts[sequence + 1]) - begin;
  size_t size = shape.states * shape.columns;
  size_t state_row = (sequence * a.heads + h) * shape.states;
  double scale = a.scale != 0.0f ? a.scale : 1.0 / std::sqrt(static_cast<double>(shape.states));

  double q(size_t t, size_t n) const { return a.q.Row(begin + t)[h * shape.states + n]; }
  double k(size_t t, size_t n) const { return a.k.Row(begin + t)[h * shape.states + n]; }
  double v(size_t t, size_t p) const {
    return p == shape.width ? 1.0 : a.v.Row(begin + t)[h * shape.width + p];
  }
  double decay(size_t t) const {
    return a.log_decay.rows == 0 ? 1.0 : std::exp(double{a.log_decay.Row(begin + t)[h]});
  }
  // State t is the one before step t; steps + 1 of them.
  Matrix States() const {
    Matrix s((steps + 1) * size);
    for (size_t i = 0; i < size && a.initial_state.rows != 0; ++i) {
      s[i] = a.initial_state.Row(state_row + i / shape.columns)[i % shape.columns];
    }
    for (size_t t = 0; t < steps; ++t) {
      for (size_t i = 0; i < size; ++i) {
        const double f = Feature(a.feature_map, k(t, i / shape.columns));
        s[(t + 1) * size + i] = decay(t) * s[t * size + i] + f * v(t, i % shape.columns);
      }
    }
    return s;
  }
  // The state that step t reads.
  size_t Read(size_t t) const { return (a.causal ? t + 1 : steps) * size; }
  double Output(const Matrix& s, size_t t, size_t p) const {
    double sum = 0.0;
    for (size_t n = 0; n < shape.states; ++n) {
      sum += Feature(a.feature_map, q(t, n)) * s[Read(t) + n * shape.columns + p];
    }
    return scale * sum + (p == shape.width ? 1e-10 : 0.0);
  }
};

void AttendRef(const HeadRef<LinearAttentionArgs>& head) {
  const LinearAttentionArgs& a = head.a;
  const auto& shape = head.shape;
  const Matrix s = head.States();
  for (size_t t = 0; t < head.steps; ++t) {
    const double normaliser = a.normalised ? head.Output(s, t, shape.width) : 1.0;
    for (size_t p = 0; p < shape.width; ++p) {
      a.o.Row(head.begin + t)[head.h * shape.width + p] =
          static_cast<float>(head.Output(s, t, p) / normaliser);
    }
    if (a.normalised && a.normaliser.rows != 0) {
      a.normaliser.Row(head.begin + t)[head.h] = static_cast<float>(normaliser);
    }
  }
  for (size_t i = 0; i < head.size && a.final_state.rows != 0; ++i) {
    a.final_state.Row(head.state_row + i / shape.columns)[i % shape.columns] =
        static_cast<float>(s[head.steps * head.size + i]);
  }
}

// Gradients with respect to scale f(q) S of step t: of a normalised output its own normaliser too.
Matrix OutputGradient(const HeadRef<LinearAttentionGradArgs>& head, const Matrix& s, size_t t) {
  const size_t width = head.shape.width;
  Matrix d(head.shape.columns);
  const double normaliser = head.a.normalised ? head.Output(s, t, width) : 1.0;
  for (size_t p = 0; p < width; ++p) {
    d[p] = head.a.d_o.Row(head.begin + t)[head.h * width + p] / normaliser;
    if (head.a.normalised) d[width] -= d[p] * head.Output(s, t, p) / normaliser;
  }
  return d;
}

void GradRef(const HeadRef<LinearAttentionGradArgs>& head) {
  const LinearAttentionGradArgs& a = head.a;
  const size_t columns = head.shape.columns, states = head.shape.states, size = head.size;
  const Matrix s = head.States();
  Matrix g(size);  // of the state after step t
  for (size_t i = 0; i < size && a.dstate.rows != 0; ++i) {
    g[i] = a.dstate.Row(head.state_row + i / columns)[i % columns];
  }
  const auto through_output = [&](size_t t) {
    const Matrix d = OutputGradient(head, s, t);
    for (size_t n = 0; n < states; ++n) {
      double dq = 0.0;
      for (size_t p = 0; p < columns; ++p) {
        dq += head.scale * d[p] * s[head.Read(t) + n * columns + p];
        g[n * columns + p] += head.scale * d[p] * Feature(a.feature_map, head.q(t, n));
      }
      a.dq.Row(head.begin + t)[head.h * states + n] =
          static_cast<float>(dq * Slope(a.feature_map, head.q(t, n)));
    }
  };
  for (size_t t = 0; t < head.steps && !a.causal; ++t) through_output(t);
  for (size_t t = head.steps; t-- > 0;) {
    if (a.causal) through_output(t);
    Matrix dv(columns);
    double dg = 0.0;
    for (size_t n = 0; n < states; ++n) {
      double dk = 0.0;
      for (size_t p = 0; p < columns; ++p) {
        double& gi = g[n * columns + p];
        dk += gi * head.v(t, p);
        dv[p] += gi * Feature(a.feature_map, head.k(t, n));
        dg += gi * head.decay(t) * s[t * size + n * columns + p];
        gi *= head.decay(t);
      }
      a.dk.Row(head.begin + t)[head.h * states + n] =
          static_cast<float>(dk * Slope(a.feature_map, head.k(t, n)));
    }
    for (size_t p = 0; p < head.shape.width; ++p) {
      a.dv.Row(head.begin + t)[head.h * head.shape.width + p] = static_cast<float>(dv[p]);
    }
    if (a.log_decay.rows != 0) a.dlog_decay.Row(head.begin + t)[head.h] = static_cast<float>(dg);
  }
  for (size_t i = 0; i < size && a.dstate.rows != 0; ++i) {
    a.dstate.Row(head.state_row + i / columns)[i % columns] = static_cast<float>(g[i]);
  }
}

}  // namespace

void LinearAttentionRef(const LinearAttentionArgs& args) {
  const size_t sequences = internal::AttentionShape(args).sequences;
  for (size_t i = 0; i < sequences * args.heads; ++i) {
    AttendRef({.a = args, .sequence = i / args.heads, .h = i % args.heads});
  }
}

void LinearAttentionGradRef(const LinearAttentionGradArgs& args) {
  const size_t sequences = internal::AttentionShape(args).sequences;
  for (size_t i = 0; i < sequences * args.heads; ++i) {
    GradRef({.a = args, .sequence = i / args.heads, .h = i % args.heads});
  }
}

}  // namespace hognose::kernels
