// The tile instructions of AMX. Highway 1.0.3 has none of them, and GCC's names want the tiles as
// literals, hence the assembler. Only for processors where Cpu().amx holds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hognose::kernels {

// Whether tile products work here: the processor has them, the system saves the tiles, and a small
// product of each kind comes out right. Asked once.
bool AmxWorks();

#if defined(__x86_64__)

// Tiles 0 to 3 are sums [16, width] of 32 bits, 4 and 5 left operands of 16 rows of `left` bytes, 6
// and 7 right operands of left / 4 rows of 4 * width bytes. In use from construction to
// destruction, on the thread at hand.
class AmxTiles {
 public:
  explicit AmxTiles(size_t width, size_t left = 64) {
    Config config;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = static_cast<uint16_t>(i == 4 || i == 5 ? left : 4 * width);
      config.rows[i] = static_cast<uint8_t>(i < 6 ? 16 : left / 4);
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void Load(const void* rows, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void Store(void* rows, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(rows), "r"(stride), "i"(kTile)
                 : "memory");
  }
  // sums += left right, with pairs of bf16.
  template <int kSums, int kLeft, int kRight>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
  // sums += left right, with fours of signed bytes.
  template <int kSums, int kLeft, int kRight>
  static void DotBytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
  // The same with unsigned bytes on the right.
  template <int kSums, int kLeft, int kRight>
  static void DotBytesUnsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }

 private:
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);
};

#endif

}  // namespace hognose::kernels
