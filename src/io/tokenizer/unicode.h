// UTF-8 and the character properties that tokenizers use.
//
// Properties follow Unicode 16: utf8proc's tables plus a list of what was assigned since Unicode 14
// (unicode_data.h), so that an older utf8proc gives the same answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace hognose::io::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

inline bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Bytes of the character that begins with `lead`, in valid UTF-8.
inline size_t CharLength(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The character at `p`, in valid UTF-8.
inline char32_t DecodeChar(const char* p) {
  const auto at = [p](int i) { return static_cast<char32_t>(static_cast<uint8_t>(p[i])); };
  switch (CharLength(*p)) {
    case 1:
      return at(0);
    case 2:
      return (at(0) & 0x1F) << 6 | (at(1) & 0x3F);
    case 3:
      return (at(0) & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
    default:
      return (at(0) & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
  }
}

// Calls f(character, its bytes) for each character of valid UTF-8.
template <typename F>
void ForEachChar(std::string_view text, F&& f) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharLength(text[i]);
    f(DecodeChar(text.data() + i), text.substr(i, length));
    i += length;
  }
}

void AppendChar(char32_t c, std::string* out);

// Of the bytes at the start of `text`: how many make one valid character (kind kValid), are the
// longest beginning of one that is then broken off (kInvalid), or might still become one if more
// bytes follow (kIncomplete).
enum class Utf8Kind : uint8_t { kValid, kInvalid, kIncomplete };
struct Utf8Step {
  Utf8Kind kind;
  size_t length;
};
Utf8Step NextUtf8(std::string_view text);

// Where the first invalid byte stands, or npos.
size_t FindInvalidUtf8(std::string_view text);

// True if every byte is ASCII.
bool IsAscii(std::string_view text);

// What the GPT-2 pattern tells apart. kSpace is White_Space, kLetter is L*, kNumber is N*.
enum class CharClass : uint8_t { kOther, kSpace, kLetter, kNumber };
CharClass ClassOfNonAscii(char32_t c);
inline CharClass ClassOf(char32_t c) {
  if (c >= 0x80) return ClassOfNonAscii(c);
  const char32_t letter = c | 0x20;
  if (letter >= 'a' && letter <= 'z') return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  return c == ' ' || (c >= '\t' && c <= '\r') ? CharClass::kSpace : CharClass::kOther;
}

inline bool IsSpace(char32_t c) { return ClassOf(c) == CharClass::kSpace; }
// Where the white space at the end of `text` begins, and where that at its start ends.
size_t SpaceAtEnd(std::string_view text);
size_t SpaceAtStart(std::string_view text);
// \w of Unicode's regular expression rules: letters, marks, decimal and letter numbers, connectors.
bool IsWord(char32_t c);
// N*, M*, and ASCII or Unicode P*: as of the tables that the tokenizers library's Digits,
// StripAccents and Punctuation use.
bool IsNumeric(char32_t c);
bool IsMark(char32_t c);
bool IsPunctuation(char32_t c);
// Whether the library's normal forms (of an older Unicode) take `c` for a character of its own.
bool IsInert(char32_t c, bool compatibility);
void AppendLower(char32_t c, std::string* out);

// Calls f(general category, first, last) for the characters assigned since Unicode 14.
void ForEachNewRange(
    core::FunctionRef<void(std::string_view category, char32_t first, char32_t last)> f);

}  // namespace hognose::io::tokenizer
