// Exec: what every operation needs besides its operands.
#pragma once

#include "core/thread_pool.h"

namespace hognose::core {

struct Exec {
  ThreadPool& pool;
};

}  // namespace hognose::core
