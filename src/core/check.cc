#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace hognose::core {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace hognose::core
