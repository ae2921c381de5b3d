// linear on AMX: linear_amx-inl.h and linear_amx_int-inl.h with the real tiles.
#include "hwy/highway.h"
#include "kernels/amx.h"
#include "kernels/linear/linear_tile.h"

#if defined(__x86_64__)

// GCC 12 takes the "undefined" operands of its own intrinsics for reads of uninitialised variables.
HWY_DIAGNOSTICS(push)
HWY_DIAGNOSTICS_OFF(disable : 4700, ignored "-Wuninitialized")
HWY_DIAGNOSTICS_OFF(disable : 4701, ignored "-Wmaybe-uninitialized")
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")
#include "kernels/linear/linear_amx-inl.h"
#include "kernels/linear/linear_amx_int-inl.h"
HWY_POP_ATTRIBUTES

namespace hognose::kernels::internal {

void LinearAmx(core::Exec& exec, const LinearArgs& args) noexcept {
  AmxProduct<AmxTiles>(exec, args);
}

void LinearAmxQuantized(core::Exec& exec, const LinearArgs& args) noexcept {
  AmxIntProduct<AmxTiles>(exec, args);
}

}  // namespace hognose::kernels::internal
HWY_DIAGNOSTICS(pop)

#else

namespace hognose::kernels::internal {
void LinearAmx(core::Exec&, const LinearArgs&) noexcept { HOGNOSE_CHECK(false); }
void LinearAmxQuantized(core::Exec&, const LinearArgs&) noexcept { HOGNOSE_CHECK(false); }
}  // namespace hognose::kernels::internal

#endif
