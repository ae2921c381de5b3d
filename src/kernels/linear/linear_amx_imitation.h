// AmxTiles in plain C++, for tests on processors without AMX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codecs/float16.h"
#include "core/cpu.h"
#include "core/dtype.h"

namespace hognose::kernels::internal {

// The code around the tiles needs a processor with AVX-512 BF16.
inline bool Lacking() { return !core::Cpu().avx512_bf16; }

// As the document of AmxTiles says, with f32 sums in order of K.
class ImitatedTiles {
 public:
  explicit ImitatedTiles(size_t width, size_t left = 64) {
    width_ = width;
    left_ = left;
  }

  template <int kTile>
  static void Zero() {
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kTile>
  static void Load(const void* rows, size_t stride) {
    for (size_t i = 0; i < Rows(kTile); ++i) {
      std::memcpy(tiles_[kTile][i], static_cast<const char*>(rows) + i * stride, Bytes(kTile));
    }
  }
  template <int kTile>
  static void Store(void* rows, size_t stride) {
    for (size_t i = 0; i < Rows(kTile); ++i) {
      std::memcpy(static_cast<char*>(rows) + i * stride, tiles_[kTile][i], Bytes(kTile));
    }
  }
  template <int kSums, int kLeft, int kRight>
  static void Dot() {
    Products<core::BFloat16, core::BFloat16, float, kSums, kLeft, kRight>();
  }
  template <int kSums, int kLeft, int kRight>
  static void DotBytes() {
    Products<int8_t, int8_t, int32_t, kSums, kLeft, kRight>();
  }
  template <int kSums, int kLeft, int kRight>
  static void DotBytesUnsigned() {
    Products<int8_t, uint8_t, int32_t, kSums, kLeft, kRight>();
  }

 private:
  static size_t Rows(int tile) { return tile < 6 ? 16 : left_ / 4; }
  static size_t Bytes(int tile) { return tile == 4 || tile == 5 ? left_ : 4 * width_; }

  static float Number(core::BFloat16 value) { return codecs::Decode(value); }
  static int32_t Number(int8_t value) { return value; }
  static int32_t Number(uint8_t value) { return value; }

  // Element i of a row of a tile.
  template <class T>
  static T At(int tile, size_t row, size_t i) {
    T value;
    std::memcpy(&value, tiles_[tile][row] + i * sizeof(T), sizeof(T));
    return value;
  }

  // A row of the right tile has, for each column, as many elements as fill 32 bits.
  template <class Left, class Right, class Sum, int kSums, int kLeft, int kRight>
  static void Products() {
    constexpr size_t kTogether = 4 / sizeof(Left);
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < width_; ++n) {
        auto sum = At<Sum>(kSums, m, n);
        for (size_t k = 0; k < left_ / sizeof(Left); ++k) {
          sum += Number(At<Left>(kLeft, m, k)) *
                 Number(At<Right>(kRight, k / kTogether, n * kTogether + k % kTogether));
        }
        std::memcpy(tiles_[kSums][m] + 4 * n, &sum, sizeof(sum));
      }
    }
  }

  static inline thread_local size_t width_ = 0;
  static inline thread_local size_t left_ = 0;
  static inline thread_local unsigned char tiles_[8][16][64] = {};
};

}  // namespace hognose::kernels::internal
