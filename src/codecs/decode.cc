#include "codecs/decode.h"

#include "codecs/float16.h"

namespace hognose::codecs {
namespace {

template <typename T>
void DecodeAs(const core::TensorView& tensor, size_t begin, std::span<float> out) {
  const T* from = tensor.As<T>() + begin;
  for (size_t i = 0; i < out.size(); ++i) out[i] = Decode(from[i]);
}

}  // namespace

void Decode(const core::TensorView& tensor, size_t begin, std::span<float> out) {
  HOGNOSE_DCHECK(begin + out.size() <= tensor.elements());
  switch (tensor.dtype) {
    case core::DType::kF32:
      return DecodeAs<float>(tensor, begin, out);
    case core::DType::kBF16:
      return DecodeAs<core::BFloat16>(tensor, begin, out);
    case core::DType::kF16:
      return DecodeAs<core::Half>(tensor, begin, out);
    default:
      HOGNOSE_CHECK(false);
  }
}

}  // namespace hognose::codecs
