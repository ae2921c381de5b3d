// The loss over the steps as a picture: a standalone SVG of 800 x 400, readable on light and dark
// backgrounds. A pure function of its points.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace hognose::train {

struct CurvePoint {
  size_t step = 0;
  double loss = 0;
};

// `training` and, if it isn't empty, `evaluation`, both ascending in step. Points whose loss isn't
// finite are left out. Of many points in one column of the picture only the first, the lowest, the
// highest and the last are drawn, which looks the same.
std::string DrawLossCurve(std::span<const CurvePoint> training,
                          std::span<const CurvePoint> evaluation);

// Round numbers (1, 2 or 5 times a power of ten apart) in [lo, hi], about `count` of them;
// lo < hi.
std::vector<double> RoundTicks(double lo, double hi, size_t count);

}  // namespace hognose::train
