#include "kernels/amx.h"

#include "codecs/float16.h"
#include "core/cpu.h"
#include "core/dtype.h"

namespace hognose::kernels {
namespace {

#if defined(__x86_64__)

// A product of small whole numbers, all different enough that a row or column out of place shows.
bool SmallProductIsRight() {
  constexpr int kRows = 16, kWidth = 5, kColumns = 32;
  const auto left = [](int m, int k) { return (m * 7 + k * 3) % 13 - 6; };
  const auto right = [](int k, int n) { return (k * 5 + n * 11) % 17 - 8; };
  core::BFloat16 a[kRows][kColumns], b[kColumns / 2][kWidth][2];
  float sums[kRows][kWidth];
  for (int k = 0; k < kColumns; ++k) {
    for (int m = 0; m < kRows; ++m) a[m][k] = codecs::EncodeBF16(static_cast<float>(left(m, k)));
    for (int n = 0; n < kWidth; ++n) {
      b[k / 2][n][k % 2] = codecs::EncodeBF16(static_cast<float>(right(k, n)));
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
  for (int m = 0; m < kRows; ++m) {
    for (int n = 0; n < kWidth; ++n) {
      int want = 0;
      for (int k = 0; k < kColumns; ++k) want += left(m, k) * right(k, n);
      if (sums[m][n] != static_cast<float>(want)) return false;
    }
  }
  return true;
}

#else

bool SmallProductIsRight() { return false; }

#endif

}  // namespace

bool AmxWorks() {
  static const bool works = core::Cpu().amx && SmallProductIsRight();
  return works;
}

}  // namespace hognose::kernels
