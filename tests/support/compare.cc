#include "tests/support/compare.h"

#include <cstring>

namespace hognose::testing {
namespace {

::testing::AssertionResult Comparable(std::span<const float> got, std::span<const float> want) {
  if (want.empty()) return ::testing::AssertionFailure() << "nothing to compare";
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << "got " << got.size() << " values, want " << want.size();
  }
  if (got.data() == want.data()) return ::testing::AssertionFailure() << "the same memory";
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult CloseToScale(std::span<const float> got, std::span<const float> want,
                                        double tolerance) {
  if (auto ok = Comparable(got, want); !ok) return ok;
  double scale = 0.0;
  for (const float w : want) {
    if (!std::isfinite(w)) return ::testing::AssertionFailure() << "the reference is not finite";
    scale = std::max(scale, std::abs(static_cast<double>(w)));
  }
  if (scale == 0.0) return ::testing::AssertionFailure() << "the reference is all zero";
  double worst = 0.0;
  size_t where = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - want[i]) / scale;
    if (std::isfinite(error) && error <= worst) continue;
    worst = error;
    where = i;
    if (!std::isfinite(error)) break;
  }
  if (worst <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "at " << where << ": got " << got[where] << ", want " << want[where]
         << ": error over scale " << worst << ", allowed " << tolerance;
}

::testing::AssertionResult Within(std::span<const float> got, std::span<const float> want,
                                  double bound) {
  if (auto ok = Comparable(got, want); !ok) return ok;
  for (size_t i = 0; i < want.size(); ++i) {
    // Written so that a NaN on either side fails.
    if (std::abs(static_cast<double>(got[i]) - want[i]) <= bound) continue;
    return ::testing::AssertionFailure() << "at " << i << ": got " << got[i] << ", want " << want[i]
                                         << ": error " << got[i] - want[i] << ", allowed " << bound;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult SameBits(std::span<const float> got, std::span<const float> want) {
  if (auto ok = Comparable(got, want); !ok) return ok;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(float)) == 0) continue;
    return ::testing::AssertionFailure()
           << "at " << i << ": got " << got[i] << ", want " << want[i] << " (other bits)";
  }
  return ::testing::AssertionSuccess();
}

std::vector<float> Flatten(core::Mat<const float> m) {
  std::vector<float> flat;
  flat.reserve(m.rows * m.cols);
  for (size_t i = 0; i < m.rows; ++i) flat.insert(flat.end(), m.Row(i), m.Row(i) + m.cols);
  return flat;
}

std::vector<float> RandomValues(core::Rng& rng, size_t size, double lo, double hi) {
  std::vector<float> values(size);
  for (auto& v : values) v = static_cast<float>(rng.Uniform(lo, hi));
  return values;
}

}  // namespace hognose::testing
