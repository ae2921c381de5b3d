// HOGNOSE_CHECK: an invariant of our own. No input reaches it; if it fails, we are wrong.
#pragma once

namespace hognose::core {

// Prints "file:line: check failed: condition" on standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace hognose::core

#define HOGNOSE_CHECK(condition)                                    \
  do {                                                              \
    if (!(condition)) [[unlikely]] {                                \
      ::hognose::core::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                               \
  } while (false)

// For hot code: checked in debug and sanitizer builds only.
#ifdef NDEBUG
#define HOGNOSE_DCHECK(condition) \
  do {                            \
    (void)sizeof(condition);      \
  } while (false)
#else
#define HOGNOSE_DCHECK(condition) HOGNOSE_CHECK(condition)
#endif
