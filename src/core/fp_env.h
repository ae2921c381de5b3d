// FlushDenormals: while it lives, this thread treats subnormal floats as zero (a decaying state is
// full of them, and they cost two to three times the step). Restores the caller's mode at the end.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hognose::core {

// This thread's floating-point mode: the processor's own control word. kFlushMode is what is set in
// it to flush (0: we know no way), kFlagsInMode the sticky exception flags, which are no mode.
#if defined(__x86_64__)
inline constexpr uint64_t kFlushMode = 0x8000 | 0x0040;  // FTZ: results, DAZ: operands
inline constexpr uint64_t kFlagsInMode = 0x3F;
inline uint64_t FloatMode() { return _mm_getcsr(); }
inline void SetFloatMode(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
// FZ flushes results and operands of f32 and f64. FZ16 stays off: f16 weights may be subnormal.
inline constexpr uint64_t kFlushMode = uint64_t{1} << 24;
inline constexpr uint64_t kFlagsInMode = 0;  // they have a register of their own, FPSR
inline uint64_t FloatMode() {
  uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
  return mode;
}
inline void SetFloatMode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#else
inline constexpr uint64_t kFlushMode = 0;
inline constexpr uint64_t kFlagsInMode = 0;
inline uint64_t FloatMode() { return 0; }
inline void SetFloatMode(uint64_t) {}
#endif

class FlushDenormals {
 public:
  FlushDenormals() : saved_(FloatMode()) { SetFloatMode(saved_ | kFlushMode); }
  ~FlushDenormals() { SetFloatMode(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace hognose::core
