#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/attention.h"

namespace hognose::kernels {

void AttentionRef(const AttentionArgs& a) {
  const size_t width = a.q.cols / a.heads, group = a.heads / a.key_heads;
  const double scale = a.scale != 0.0f ? a.scale : 1.0 / std::sqrt(static_cast<double>(width));
  const size_t sequences = a.query_offsets.size == 0 ? 1 : a.query_offsets.size - 1;
  for (size_t b = 0; b < sequences; ++b) {
    const bool packed = a.query_offsets.size != 0;
    const size_t query = packed ? a.query_offsets[b] : 0, key = packed ? a.key_offsets[b] : 0;
    const size_t queries = packed ? a.query_offsets[b + 1] - query : a.q.rows;
    const size_t keys = packed ? a.key_offsets[b + 1] - key : a.k.rows;
    std::vector<double> weights(keys);
    for (size_t i = 0; i < queries * a.heads && keys > 0; ++i) {
      const size_t row = query + i / a.heads, head = i % a.heads;
      const float* q = a.q.Row(row) + head * width;
      double max = -std::numeric_limits<double>::infinity(), sum = 0.0;
      for (size_t j = 0; j < keys; ++j) {
        const float* k = a.k.Row(key + j) + head / group * width;
        const size_t t = i / a.heads + keys - queries;  // the query's own key
        const bool seen = !a.causal || (j <= t && (a.window == 0 || j + a.window > t));
        double score = seen ? 0.0 : -std::numeric_limits<double>::infinity();
        for (size_t p = 0; p < width && seen; ++p) score += static_cast<double>(q[p]) * k[p];
        weights[j] = seen ? scale * score : score;
        max = std::max(max, weights[j]);
      }
      for (double& w : weights) sum += w = std::exp(w - max);
      for (size_t p = 0; p < width; ++p) {
        double y = 0.0;
        for (size_t j = 0; j < keys; ++j) {
          // A weight of 0 may meet an infinite value that nobody sees.
          if (weights[j] != 0.0) y += weights[j] * a.v.Row(key + j)[head / group * width + p];
        }
        a.y.Row(row)[head * width + p] = static_cast<float>(y / sum);
      }
    }
  }
}

}  // namespace hognose::kernels
