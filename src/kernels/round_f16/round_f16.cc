#include "kernels/round_f16/round_f16.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/round_f16/round_f16.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

// Adding and taking away 2^(e + 13), e the exponent of x, leaves eleven bits: those of an F16.
// Below 2^-14 the spacing is that of 2^-14, as of F16's denormals.
HWY_INLINE VF Rounded(DF d, VF x) {
  const hn::RebindToUnsigned<DF> du;
  const VF magnitude = hn::Abs(x);
  const VF least = hn::Set(d, 0x1p-14f);
  const auto exponent =
      hn::And(hn::BitCast(du, hn::Max(magnitude, least)), hn::Set(du, 0x7F800000u));
  const VF large = hn::Mul(hn::BitCast(d, exponent), hn::Set(d, 0x1p13f));
  const VF shifted = hn::Sub(hn::Add(magnitude, large), large);
  const VF infinity = hn::BitCast(d, hn::Set(du, 0x7F800000u));
  const VF finite = hn::IfThenElse(hn::Gt(shifted, hn::Set(d, 65504.0f)), infinity, shifted);
  const auto ordinary = hn::Lt(magnitude, hn::Set(d, 0x1p17f));
  const VF rounded = hn::IfThenElse(ordinary, finite, infinity);
  return hn::IfThenElse(hn::Eq(x, x), hn::CopySign(rounded, x), x);
}

void RoundRows(const RoundF16Args& a, size_t begin, size_t end) {
  const DF d;
  for (size_t l = begin; l < end; ++l) {
    ForVectors(a.x.cols, [&](size_t i, size_t count) HWY_ATTR {
      StoreN(d, Rounded(d, LoadN(d, a.x.Row(l) + i, count)), a.y.Row(l) + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {

HWY_EXPORT(RoundRows);

void RoundF16(core::Exec& exec, const RoundF16Args& args) noexcept {
  HOGNOSE_DCHECK(args.x.rows == args.y.rows && args.x.cols == args.y.cols);
  constexpr size_t kRowsPerTask = 16;
  exec.pool.Run((args.x.rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(RoundRows)
    (args, task * kRowsPerTask, std::min(args.x.rows, (task + 1) * kRowsPerTask));
  });
}

}  // namespace hognose::kernels
#endif
