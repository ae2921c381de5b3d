#include "kernels/read_bytes/read_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/read_bytes/read_bytes.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The exclusive or of `words` 64-bit words at p (any alignment).
uint64_t XorWords(const uint8_t* p, size_t words) {
  const size_t bytes = words * sizeof(uint64_t);
  uint64_t result = 0;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR  // whose only lane of bytes is no word
  const hn::ScalableTag<uint8_t> d8;
  const hn::ScalableTag<uint64_t> d;
  const size_t step = hn::Lanes(d8);
  auto sum0 = hn::Zero(d), sum1 = sum0;
  // Asked for as the products ask for weights (linear_tile.h): without, they would read faster than
  // what they are measured against.
  constexpr size_t kAhead = size_t{24} << 10;
  for (; i + 2 * step <= bytes; i += 2 * step) {
    __builtin_prefetch(p + i + kAhead, 0, 2);
    __builtin_prefetch(p + i + kAhead + step, 0, 2);
    sum0 = hn::Xor(sum0, hn::BitCast(d, hn::LoadU(d8, p + i)));
    sum1 = hn::Xor(sum1, hn::BitCast(d, hn::LoadU(d8, p + i + step)));
  }
  HWY_ALIGN uint64_t lanes[HWY_MAX_BYTES / sizeof(uint64_t)] = {};
  hn::Store(hn::Xor(sum0, sum1), d, lanes);
  for (const uint64_t lane : lanes) result ^= lane;
#endif
  for (; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, p + i, sizeof(word));
    result ^= word;
  }
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hognose::kernels {
namespace {

HWY_EXPORT(XorWords);

// The last, partial word.
uint64_t Rest(std::span<const uint8_t> bytes) {
  uint64_t word = 0;
  const size_t count = bytes.size() % sizeof(word);
  if (count > 0) std::memcpy(&word, bytes.data() + bytes.size() - count, count);
  return word;
}

}  // namespace

uint64_t ReadBytes(core::Exec& exec, std::span<const uint8_t> bytes) noexcept {
  constexpr size_t kBlockWords = (size_t{1} << 20) / sizeof(uint64_t);
  const size_t words = bytes.size() / sizeof(uint64_t);
  std::atomic<uint64_t> result{Rest(bytes)};
  exec.pool.Run((words + kBlockWords - 1) / kBlockWords, [&](size_t task) {
    const size_t begin = task * kBlockWords;
    const size_t count = std::min(kBlockWords, words - begin);
    result.fetch_xor(
        HWY_DYNAMIC_DISPATCH(XorWords)(bytes.data() + begin * sizeof(uint64_t), count));
  });
  return result.load();
}

uint64_t ReadBytesRef(std::span<const uint8_t> bytes) {
  uint64_t result = 0;
  for (size_t i = 0; i < bytes.size(); ++i) result ^= uint64_t{bytes[i]} << (8 * (i % 8));
  return result;
}

}  // namespace hognose::kernels
#endif
