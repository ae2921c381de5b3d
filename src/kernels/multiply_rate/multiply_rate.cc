#include "kernels/multiply_rate/multiply_rate.h"

#include <algorithm>
#include <cstddef>

#include "codecs/float16.h"
#include "kernels/amx.h"
#include "kernels/avx512.h"
#include "kernels/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/multiply_rate/multiply_rate.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

namespace hognose::kernels {
#ifndef HOGNOSE_MULTIPLY_RATE_ONCE_
#define HOGNOSE_MULTIPLY_RATE_ONCE_
// Sums in flight: more than any processor's latency times its instructions a cycle, fewer than the
// 16 registers of AVX2.
constexpr size_t kChains = 12;
#endif
}  // namespace hognose::kernels

HWY_BEFORE_NAMESPACE();
namespace hognose::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

double SumF32(uint64_t rounds, int x, int y) {
  const hn::ScalableTag<float> d;
  const auto xv = hn::Set(d, static_cast<float>(x)), yv = hn::Set(d, static_cast<float>(y));
  hn::Vec<decltype(d)> sum[kChains];
  for (auto& s : sum) s = hn::Zero(d);
  for (uint64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = hn::MulAdd(xv, yv, s);
  }
  auto total = sum[0];
  for (size_t i = 1; i < kChains; ++i) total = hn::Add(total, sum[i]);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

#if HWY_TARGET == HWY_AVX3_DL
// Highway's target has the instruction but not GCC's name for it, hence the assembler. By value: a
// sum whose address is taken would leave its register.
template <class V>
HWY_INLINE V DotBytes(V x, V y, V sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(y.raw));
  return sum;
}
#endif

// Eight-bit numbers: VPDPBUSD where there is VNNI, else unpacked to 16 bits as the products over
// INT8 weights do it (PMADDWD and an addition).
double SumInt8(uint64_t rounds, int x, int y) {
  const hn::ScalableTag<int32_t> d;
#if HWY_TARGET == HWY_SCALAR
  int32_t sum[kChains] = {};
  for (uint64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) {
      s += x * y;
      asm("" : "+r"(s));  // or the compiler multiplies once by the number of rounds
    }
  }
  int32_t total = 0;
  for (const auto s : sum) total += s;
  (void)d;
  return total;
#else
  hn::Vec<decltype(d)> sum[kChains];
  for (auto& s : sum) s = hn::Zero(d);
#if HWY_TARGET == HWY_AVX3_DL
  const auto xv = hn::Set(d, x * 0x01010101), yv = hn::Set(d, y * 0x01010101);
  for (uint64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = DotBytes(xv, yv, s);
  }
#else
  const hn::RepartitionToNarrow<decltype(d)> d16;
  const auto xv = hn::Set(d16, static_cast<int16_t>(x)), yv = hn::Set(d16, static_cast<int16_t>(y));
  auto unused = hn::Zero(d);
  for (uint64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = hn::ReorderWidenMulAccumulate(d, xv, yv, s, unused);
  }
  sum[0] = hn::Add(sum[0], unused);
#endif
  auto total = sum[0];
  for (size_t i = 1; i < kChains; ++i) total = hn::Add(total, sum[i]);
  return hn::GetLane(hn::SumOfLanes(d, total));
#endif
}

size_t LanesF32() { return hn::Lanes(hn::ScalableTag<float>()); }
size_t Products8() {
  const size_t lanes = hn::Lanes(hn::ScalableTag<int32_t>());
  return HWY_TARGET == HWY_SCALAR ? 1 : (HWY_TARGET == HWY_AVX3_DL ? 4 : 2) * lanes;
}

}  // namespace HWY_NAMESPACE
}  // namespace hognose::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#if defined(__x86_64__)

HWY_PUSH_ATTRIBUTES(HOGNOSE_AVX512_BF16)
namespace hognose::kernels {
namespace {

double SumBf16(uint64_t rounds, int x, int y) {
  const __m512bh xs = _mm512_cvtne2ps_pbh(_mm512_set1_ps(static_cast<float>(x)),
                                          _mm512_set1_ps(static_cast<float>(x)));
  const __m512bh ys = _mm512_cvtne2ps_pbh(_mm512_set1_ps(static_cast<float>(y)),
                                          _mm512_set1_ps(static_cast<float>(y)));
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_setzero_ps();
  for (uint64_t i = 0; i < rounds; ++i) {
    for (auto& s : sum) s = _mm512_dpbf16_ps(s, xs, ys);
  }
  __m512 total = sum[0];
  for (size_t i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sum[i]);
  return _mm512_reduce_add_ps(total);
}

}  // namespace
}  // namespace hognose::kernels
HWY_POP_ATTRIBUTES

namespace hognose::kernels {
namespace {

constexpr size_t kTileSums = 4;

// Products of tiles of T: left operands all x, right ones all y. Sum is what the tiles add up in.
template <typename T, typename Sum>
double SumTiles(uint64_t rounds, T x, T y) {
  alignas(64) T left[16 * 64 / sizeof(T)], right[16 * 64 / sizeof(T)];
  alignas(64) Sum sums[kTileSums][16 * 16];
  std::fill(std::begin(left), std::end(left), x);
  std::fill(std::begin(right), std::end(right), y);
  {
    const AmxTiles tiles(16);
    AmxTiles::Load<4>(left, 64);
    AmxTiles::Load<5>(left, 64);
    AmxTiles::Load<6>(right, 64);
    AmxTiles::Load<7>(right, 64);
    for (uint64_t i = 0; i < rounds; ++i) {
      if constexpr (sizeof(T) == 1) {
        AmxTiles::DotBytes<0, 4, 6>();
        AmxTiles::DotBytes<1, 4, 7>();
        AmxTiles::DotBytes<2, 5, 6>();
        AmxTiles::DotBytes<3, 5, 7>();
      } else {
        AmxTiles::Dot<0, 4, 6>();
        AmxTiles::Dot<1, 4, 7>();
        AmxTiles::Dot<2, 5, 6>();
        AmxTiles::Dot<3, 5, 7>();
      }
    }
    AmxTiles::Store<0>(sums[0], 64);
    AmxTiles::Store<1>(sums[1], 64);
    AmxTiles::Store<2>(sums[2], 64);
    AmxTiles::Store<3>(sums[3], 64);
  }
  double total = 0.0;
  for (const auto& tile : sums) {
    for (const Sum sum : tile) total += sum;
  }
  return total;
}

double SumBf16Tiles(uint64_t rounds, int x, int y) {
  return SumTiles<core::BFloat16, float>(rounds, codecs::EncodeBF16(static_cast<float>(x)),
                                         codecs::EncodeBF16(static_cast<float>(y)));
}
double SumInt8Tiles(uint64_t rounds, int x, int y) {
  return SumTiles<int8_t, int32_t>(rounds, static_cast<int8_t>(x), static_cast<int8_t>(y));
}

}  // namespace
}  // namespace hognose::kernels
#else
namespace hognose::kernels {
namespace {
constexpr size_t kTileSums = 0;
double SumBf16(uint64_t, int, int) { return 0.0; }
double SumBf16Tiles(uint64_t, int, int) { return 0.0; }
double SumInt8Tiles(uint64_t, int, int) { return 0.0; }
}  // namespace
}  // namespace hognose::kernels
#endif

namespace hognose::kernels {
namespace {

HWY_EXPORT(SumF32);
HWY_EXPORT(SumInt8);
HWY_EXPORT(LanesF32);
HWY_EXPORT(Products8);

}  // namespace

MultiplyUnit UnitFor(MultiplyType type) {
  switch (type) {
    case MultiplyType::kF32:
      return {"multiply-add", static_cast<double>(kChains * HWY_DYNAMIC_DISPATCH(LanesF32)())};
    case MultiplyType::kBF16:
      if (UseAmx()) return {"TDPBF16PS", static_cast<double>(kTileSums * 16 * 16 * 32)};
      if (!UseAvx512Bf16()) return {};
      return {"VPDPBF16PS", static_cast<double>(kChains * 32)};
    case MultiplyType::kInt8:
      break;
  }
  if (UseAmx()) return {"TDPBSSD", static_cast<double>(kTileSums * 16 * 16 * 64)};
  const size_t products = HWY_DYNAMIC_DISPATCH(Products8)();
  const char* name = products == 64 ? "VPDPBUSD" : products == 1 ? "multiply-add" : "16-bit pairs";
  return {name, static_cast<double>(kChains * products)};
}

double MultiplyRate(MultiplyType type, uint64_t rounds, int x, int y) noexcept {
  switch (type) {
    case MultiplyType::kF32:
      return HWY_DYNAMIC_DISPATCH(SumF32)(rounds, x, y);
    case MultiplyType::kBF16:
      if (UseAmx()) return SumBf16Tiles(rounds, x, y);
      return UseAvx512Bf16() ? SumBf16(rounds, x, y) : 0.0;
    case MultiplyType::kInt8:
      break;
  }
  if (UseAmx()) return SumInt8Tiles(rounds, x, y);
  return HWY_DYNAMIC_DISPATCH(SumInt8)(rounds, x, y);
}

double MultiplyRateRef(MultiplyType type, uint64_t rounds, int x, int y) {
  return UnitFor(type).products * static_cast<double>(rounds) * x * y;
}

}  // namespace hognose::kernels
#endif
