#include "io/tokenizer/byte_level.h"

#include <array>

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// Bytes that print stand for themselves; the others are numbered from U+0100.
constexpr std::array<uint16_t, 256> MakeAlphabet() {
  std::array<uint16_t, 256> alphabet = {};
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet[byte] = IsPrintable(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return alphabet;
}

constexpr std::array<uint16_t, 256> kAlphabet = MakeAlphabet();
constexpr int16_t kNone = -1;

constexpr std::array<int16_t, 0x144> MakeInverse() {
  std::array<int16_t, 0x144> inverse = {};
  for (auto& byte : inverse) byte = kNone;
  for (int byte = 0; byte < 256; ++byte) inverse[kAlphabet[byte]] = static_cast<int16_t>(byte);
  return inverse;
}

constexpr std::array<int16_t, 0x144> kInverse = MakeInverse();

}  // namespace

char32_t ByteToChar(uint8_t byte) { return kAlphabet[byte]; }

std::optional<uint8_t> CharToByte(char32_t c) {
  if (c >= kInverse.size() || kInverse[c] == kNone) return std::nullopt;
  return static_cast<uint8_t>(kInverse[c]);
}

void AppendByteLevel(std::string_view bytes, std::string* out) {
  for (const char byte : bytes) AppendChar(kAlphabet[static_cast<uint8_t>(byte)], out);
}

void AppendFromByteLevel(std::string_view text, std::string* out) {
  const size_t before = out->size();
  for (size_t i = 0; i < text.size(); i += CharLength(text[i])) {
    const auto byte = CharToByte(DecodeChar(text.data() + i));
    if (!byte) {
      out->resize(before);
      out->append(text);
      return;
    }
    out->push_back(static_cast<char>(*byte));
  }
}

}  // namespace hognose::io::tokenizer
