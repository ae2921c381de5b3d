// The oracle of ssd_scan's gradient: the recurrence step by step, in double, all states kept.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ssd_scan/ssd_scan.h"

namespace hognose::kernels {
namespace {

struct Step {
  double slope, dt, decay;
};

Step Discretised(const SsdScanGradArgs& a, size_t t, size_t h) {
  const double raw = static_cast<double>(a.dt.Row(t)[h]) + a.dt_bias.data[h];
  const double softplus = raw > 20.0 ? raw : std::log1p(std::exp(raw));
  const double low = a.dt_min, high = a.dt_max;
  const bool inside = softplus >= low && softplus <= high;
  const double slope = !inside ? 0.0 : raw > 20.0 ? 1.0 : 1.0 / (1.0 + std::exp(-raw));
  const double dt = std::min(std::max(softplus, low), high);
  return {slope, dt, std::exp(dt * a.a.data[h])};
}

// One head; db and dc are sums over heads, in double.
void GradHeadRef(const SsdScanGradArgs& a, size_t h, std::vector<double>& db,
                 std::vector<double>& dc) {
  const size_t width = a.state.cols, states = a.b.cols / a.groups, steps = a.x.rows;
  const size_t size = states * width, first = h / (a.a.size / a.groups) * states;
  std::vector<double> s((steps + 1) * size), g(size);
  for (size_t i = 0; i < size; ++i) {
    s[i] = a.state.Row(h * states + i / width)[i % width];
    g[i] = a.dstate.Row(h * states + i / width)[i % width];
  }
  for (size_t t = 0; t < steps; ++t) {
    const Step step = Discretised(a, t, h);
    for (size_t i = 0; i < size; ++i) {
      s[(t + 1) * size + i] = step.decay * s[t * size + i] + step.dt *
                                                                 a.x.Row(t)[h * width + i % width] *
                                                                 a.b.Row(t)[first + i / width];
    }
  }
  double dbias = 0.0, da = 0.0;
  for (size_t t = steps; t-- > 0;) {
    const Step step = Discretised(a, t, h);
    double ddt = 0.0, dsum = 0.0;
    std::vector<double> dx(width);
    for (size_t i = 0; i < size; ++i) {
      const size_t n = i / width, p = i % width;
      const double x = a.x.Row(t)[h * width + p], b = a.b.Row(t)[first + n];
      const double dy = a.dy.Row(t)[h * width + p];
      g[i] += dy * a.c.Row(t)[first + n];
      dc[t * a.c.cols + first + n] += dy * s[(t + 1) * size + i];
      db[t * a.b.cols + first + n] += g[i] * step.dt * x;
      dx[p] += g[i] * b * step.dt;
      ddt += g[i] * x * b;
      dsum += g[i] * step.decay * s[t * size + i];
      g[i] *= step.decay;
    }
    for (size_t p = 0; p < width; ++p) {
      const double dy = a.dy.Row(t)[h * width + p];
      const size_t column = h * width + p;
      a.dx.Row(t)[column] = static_cast<float>(dx[p] + a.d_skip.data[column] * dy);
    }
    const double draw = (ddt + a.a.data[h] * dsum) * step.slope;
    a.ddt.Row(t)[h] = static_cast<float>(draw);
    dbias += draw;
    da += step.dt * dsum;
  }
  a.ddt_bias.data[h] += static_cast<float>(dbias);
  a.da.data[h] += static_cast<float>(da);
  for (size_t i = 0; i < size; ++i) {
    a.dstate.Row(h * states + i / width)[i % width] = static_cast<float>(g[i]);
  }
}

}  // namespace

void SsdScanGradRef(const SsdScanGradArgs& a) {
  std::vector<double> db(a.x.rows * a.b.cols), dc(a.x.rows * a.c.cols);
  for (size_t h = 0; h < a.a.size; ++h) GradHeadRef(a, h, db, dc);
  for (size_t t = 0; t < a.x.rows; ++t) {
    for (size_t n = 0; n < a.b.cols; ++n) {
      a.db.Row(t)[n] = static_cast<float>(db[t * a.b.cols + n]);
      a.dc.Row(t)[n] = static_cast<float>(dc[t * a.c.cols + n]);
    }
  }
  for (size_t column = 0; column < a.x.cols; ++column) {
    double sum = 0.0;
    for (size_t t = 0; t < a.x.rows; ++t) {
      sum += static_cast<double>(a.dy.Row(t)[column]) * a.x.Row(t)[column];
    }
    a.dd_skip.data[column] += static_cast<float>(sum);
  }
}

}  // namespace hognose::kernels
