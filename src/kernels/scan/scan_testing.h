// For the tests of this folder: series with gaps, filled with chosen values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/scan/scan.h"

namespace hognose::kernels {

inline constexpr ScanOp kScanOps[] = {ScanOp::kLinear, ScanOp::kSum, ScanOp::kProduct,
                                      ScanOp::kMax};
inline constexpr ScanMethod kScanMethods[] = {ScanMethod::kSequential, ScanMethod::kChunked,
                                              ScanMethod::kSegmented, ScanMethod::kBlelloch};

struct ScanSize {
  size_t b, l, c;
  size_t gap = 0;  // elements between steps; sequences have 3 more between them
};

// [B, L, C] with its memory, gaps included.
struct TestSeries {
  ScanSize size;
  std::vector<float> values;

  explicit TestSeries(ScanSize s, float value = 7.0f)
      : size(s), values(s.b * (s.l * (s.c + s.gap) + 3), value) {}
  TestSeries(ScanSize s, const std::function<float()>& next) : TestSeries(s) {
    for (float& v : values) v = next();
  }
  Series<float> View() {
    const size_t step = size.c + size.gap;
    return {values.data(), size.b, size.l, size.c, size.l * step + 3, step};
  }
};

inline std::string ToString(ScanSize s) {
  return "B " + std::to_string(s.b) + " L " + std::to_string(s.l) + " C " + std::to_string(s.c) +
         " gap " + std::to_string(s.gap);
}

}  // namespace hognose::kernels
