// For functions of our own on AVX-512 and VDPBF16PS, which Highway 1.0.3 has no target for: the
// intrinsics, and HOGNOSE_AVX512_BF16 for HWY_PUSH_ATTRIBUTES, what they are compiled for.
#pragma once

#include "hwy/base.h"

#if defined(__x86_64__)

// GCC 12 takes the "undefined" operands of its own intrinsics for reads of uninitialised variables.
HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4700, ignored "-Wuninitialized")
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wmaybe-uninitialized")
#include <immintrin.h>
HWY_DIAGNOSTICS(pop)

#define HOGNOSE_AVX512_BF16 "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma"

#endif
