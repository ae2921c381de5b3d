// For kernel tests: the same body on every target that this processor has.
#pragma once

#include <gtest/gtest.h>

#include "kernels/target.h"

namespace hognose::kernels {

template <typename Body>
void ForEachTarget(const Body& body) {
  for (const auto target : SupportedTargets()) {
    SCOPED_TRACE(target);
    ASSERT_TRUE(ForceTarget(target).ok());
    ASSERT_EQ(CurrentTarget(), target);
    body();
  }
  ASSERT_TRUE(ForceTarget("").ok());
}

}  // namespace hognose::kernels
