// AllocGuard: counts the allocations that any thread makes while it lives.
//
// malloc and its kin are replaced in the whole program that links hognose_alloc_guard, so what the
// C library and `operator new` take is counted too. Builds with a sanitizer, which own malloc,
// count with the sanitizer's hooks instead.
#pragma once

#include <cstddef>

namespace hognose::testing {

// One at a time.
class AllocGuard {
 public:
  AllocGuard();
  ~AllocGuard();
  AllocGuard(const AllocGuard&) = delete;
  AllocGuard& operator=(const AllocGuard&) = delete;

  size_t count() const;
};

}  // namespace hognose::testing
