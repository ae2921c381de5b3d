// Comparison of numbers in tests. A comparison that compared nothing, a NaN, or two views of the
// same memory is a failure, never a pass.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"

namespace hognose::testing {

// Passes when every |got - want| <= tolerance * max |want| (elements of the output's scale;
// `tolerance` is written by the caller as a multiple of an epsilon, with its derivation).
::testing::AssertionResult CloseToScale(std::span<const float> got, std::span<const float> want,
                                        double tolerance);

// Passes when every |got - want| <= bound. For results that cancel, whose own scale says nothing
// about the error; the caller writes the bound with its derivation.
::testing::AssertionResult Within(std::span<const float> got, std::span<const float> want,
                                  double bound);

// Passes when all bits are equal.
::testing::AssertionResult SameBits(std::span<const float> got, std::span<const float> want);

// The rows of a matrix, one after the other.
std::vector<float> Flatten(core::Mat<const float> m);

// `size` values, uniform in [lo, hi).
std::vector<float> RandomValues(core::Rng& rng, size_t size, double lo, double hi);

inline constexpr double kEpsF32 = 0x1p-23;
inline constexpr double kEpsBF16 = 0x1p-8;

}  // namespace hognose::testing
