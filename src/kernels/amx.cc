#include "kernels/amx.h"

#include "codecs/float16.h"
#include "core/cpu.h"
#include "core/dtype.h"

namespace hognose::kernels {
namespace {

#if defined(__x86_64__)

// Small whole numbers, all different enough that a row or column out of place shows.
constexpr int kRows = 16, kWidth = 5;
int Left(int m, int k) { return (m * 7 + k * 3) % 13 - 6; }
int Right(int k, int n) { return (k * 5 + n * 11) % 17 - 8; }

// Whether sums[m][n] are those of Left(m, k) * (Right(k, n) + offset) over `columns` of k.
template <typename T>
bool SumsAreRight(const T (&sums)[kRows][kWidth], int columns, int offset) {
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kWidth; ++n) {
      int want = 0;
      for (int k = 0; k < columns; ++k) want += Left(m, k) * (Right(k, n) + offset);
      if (sums[m][n] != static_cast<T>(want)) return false;
    }
  }
  return true;
}

bool BF16ProductIsRight() {
  constexpr int kColumns = 32;
  core::BFloat16 a[kRows][kColumns], b[kColumns / 2][kWidth][2];
  float sums[kRows][kWidth];
  for (int k = 0; k < kColumns; ++k) {
    for (int m = 0; m < kRows; ++m) a[m][k] = codecs::EncodeBF16(static_cast<float>(Left(m, k)));
    for (int n = 0; n < kWidth; ++n) {
      b[k / 2][n][k % 2] = codecs::EncodeBF16(static_cast<float>(Right(k, n)));
    }
  }
  {
    const AmxTiles tiles(kWidth);
    AmxTiles::Zero<0>();
    AmxTiles::Load<4>(a, sizeof(a[0]));
    AmxTiles::Load<6>(b, sizeof(b[0]));
    AmxTiles::Dot<0, 4, 6>();
    AmxTiles::Store<0>(sums, sizeof(sums[0]));
  }
  return SumsAreRight(sums, kColumns, 0);
}

// Signed bytes by signed ones, and by unsigned ones that are larger than any signed one.
template <int kColumns>
bool ByteProductsAreRight() {
  constexpr int kOffset = 240;
  int8_t a[kRows][kColumns], b[kColumns / 4][kWidth][4];
  uint8_t b_unsigned[kColumns / 4][kWidth][4];
  int32_t sums[kRows][kWidth], sums_unsigned[kRows][kWidth];
  for (int k = 0; k < kColumns; ++k) {
    for (int m = 0; m < kRows; ++m) a[m][k] = static_cast<int8_t>(Left(m, k));
    for (int n = 0; n < kWidth; ++n) {
      b[k / 4][n][k % 4] = static_cast<int8_t>(Right(k, n));
      b_unsigned[k / 4][n][k % 4] = static_cast<uint8_t>(Right(k, n) + kOffset);
    }
  }
  {
    const AmxTiles tiles(kWidth, kColumns);
    AmxTiles::Zero<0>();
    AmxTiles::Zero<1>();
    AmxTiles::Load<4>(a, sizeof(a[0]));
    AmxTiles::Load<6>(b, sizeof(b[0]));
    AmxTiles::DotBytes<0, 4, 6>();
    AmxTiles::Load<7>(b_unsigned, sizeof(b_unsigned[0]));
    AmxTiles::DotBytesUnsigned<1, 4, 7>();
    AmxTiles::Store<0>(sums, sizeof(sums[0]));
    AmxTiles::Store<1>(sums_unsigned, sizeof(sums_unsigned[0]));
  }
  return SumsAreRight(sums, kColumns, 0) && SumsAreRight(sums_unsigned, kColumns, kOffset);
}

bool SmallProductsAreRight() {
  return BF16ProductIsRight() && ByteProductsAreRight<32>() && ByteProductsAreRight<64>();
}

#else

bool SmallProductsAreRight() { return false; }

#endif

}  // namespace

bool AmxWorks() {
  static const bool works = core::Cpu().amx && SmallProductsAreRight();
  return works;
}

}  // namespace hognose::kernels
