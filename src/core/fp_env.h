// FlushDenormals: while it lives, this thread treats subnormal floats as zero (a decaying state is
// full of them, and they cost two to three times the step). Restores the caller's mode at the end.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hognose::core {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : saved_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
    _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() { _mm_setcsr(saved_); }
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned saved_ = 0;
};

}  // namespace hognose::core
