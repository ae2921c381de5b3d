#include "kernels/find_nonfinite/find_nonfinite.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "codecs/float16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/find_nonfinite/find_nonfinite.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// True if some word of [p, p + count) has all bits of `exponent`.
template <typename Word>
bool AnyAllOnes(const Word* p, size_t count, Word exponent) {
  const hn::ScalableTag<Word> d;
  const size_t lanes = hn::Lanes(d);
  const auto ones = hn::Set(d, exponent);
  // Equal words set bits of `found`; a branch per word would cost more than the words.
  auto found = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto word = hn::And(hn::LoadU(d, p + i), ones);
    found = hn::Or(found, hn::VecFromMask(d, hn::Eq(word, ones)));
  }
  bool any = !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
  for (; i < count; ++i) any = any || (p[i] & exponent) == exponent;
  return any;
}

bool AnyAllOnes32(const uint32_t* p, size_t count, uint32_t exponent) {
  return AnyAllOnes(p, count, exponent);
}
bool AnyAllOnes16(const uint16_t* p, size_t count, uint16_t exponent) {
  return AnyAllOnes(p, count, exponent);
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(AnyAllOnes32);
HWY_EXPORT(AnyAllOnes16);

// Elements [begin, end) of the tensor.
bool AnyNonFinite(const core::TensorView& tensor, size_t begin, size_t end) {
  if (tensor.dtype == core::DType::kF32) {
    const auto* p = static_cast<const uint32_t*>(tensor.data);
    return HWY_DYNAMIC_DISPATCH(AnyAllOnes32)(p + begin, end - begin, 0x7F800000u);
  }
  const auto* p = static_cast<const uint16_t*>(tensor.data);
  const uint16_t exponent = tensor.dtype == core::DType::kBF16 ? 0x7F80 : 0x7C00;
  return HWY_DYNAMIC_DISPATCH(AnyAllOnes16)(p + begin, end - begin, exponent);
}

size_t BlockSize(const core::TensorView& tensor) {
  return (size_t{1} << 20) / core::Bytes(tensor.dtype);
}

size_t Blocks(const core::TensorView& tensor) {
  if (!core::IsWeightFloat(tensor.dtype)) return 0;
  return (tensor.elements() + BlockSize(tensor) - 1) / BlockSize(tensor);
}

// The tensor and the first element of a block, counted over all tensors.
NonFinite BeginOf(std::span<const core::TensorView> tensors, size_t block) {
  size_t i = 0;
  for (; block >= Blocks(tensors[i]); ++i) block -= Blocks(tensors[i]);
  return {i, block * BlockSize(tensors[i])};
}

}  // namespace

std::optional<NonFinite> FindNonFinite(core::Exec& exec,
                                       std::span<const core::TensorView> tensors) noexcept {
  size_t blocks = 0;
  for (const auto& tensor : tensors) blocks += Blocks(tensor);
  std::atomic<size_t> first{~size_t{0}};
  exec.pool.Run(blocks, [&](size_t task) {
    const NonFinite at = BeginOf(tensors, task);
    const auto& tensor = tensors[at.tensor];
    const size_t end = std::min(tensor.elements(), at.element + BlockSize(tensor));
    if (!AnyNonFinite(tensor, at.element, end)) return;
    size_t seen = first.load();
    while (task < seen && !first.compare_exchange_weak(seen, task)) {
    }
  });
  if (first.load() == ~size_t{0}) return std::nullopt;
  NonFinite found = BeginOf(tensors, first.load());
  while (!AnyNonFinite(tensors[found.tensor], found.element, found.element + 1)) ++found.element;
  return found;
}

std::optional<size_t> FindNonFinite(core::Exec& exec, const core::TensorView& tensor) noexcept {
  const auto found = FindNonFinite(exec, std::span(&tensor, 1));
  if (!found) return std::nullopt;
  return found->element;
}

std::optional<size_t> FindNonFiniteRef(const core::TensorView& tensor) {
  if (!core::IsWeightFloat(tensor.dtype)) return std::nullopt;
  for (size_t i = 0; i < tensor.elements(); ++i) {
    float value = 0.0f;
    if (tensor.dtype == core::DType::kF32) value = tensor.As<float>()[i];
    if (tensor.dtype == core::DType::kBF16) value = codecs::Decode(tensor.As<core::BFloat16>()[i]);
    if (tensor.dtype == core::DType::kF16) value = codecs::Decode(tensor.As<core::Half>()[i]);
    if (!std::isfinite(value)) return i;
  }
  return std::nullopt;
}

}  // namespace hognose::kernels
#endif
