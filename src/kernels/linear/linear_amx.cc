// linear on AMX: linear_amx-inl.h and linear_amx_int-inl.h with the real tiles.
#include "kernels/amx.h"
#include "kernels/avx512.h"
#include "kernels/linear/linear_tile.h"

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(HOGNOSE_AVX512_BF16)
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

#else

namespace hognose::kernels::internal {
void LinearAmx(core::Exec&, const LinearArgs&) noexcept { HOGNOSE_CHECK(false); }
void LinearAmxQuantized(core::Exec&, const LinearArgs&) noexcept { HOGNOSE_CHECK(false); }
}  // namespace hognose::kernels::internal

#endif
