#include "io/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "io/tokenizer/unicode_data.h"

namespace hognose::io::tokenizer {
namespace {

// The range that holds `c`, or nullptr.
template <typename R, size_t N>
const R* Find(const R (&ranges)[N], char32_t c) {
  const R* range = std::lower_bound(std::begin(ranges), std::end(ranges), c,
                                    [](const R& r, char32_t value) { return r.last < value; });
  return range != std::end(ranges) && range->first <= c ? range : nullptr;
}

utf8proc_category_t CategoryOf(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category != UTF8PROC_CATEGORY_CN) return category;
  const CategoryRange* range = Find(kNewCharacters, c);
  return range == nullptr ? UTF8PROC_CATEGORY_CN : range->category;
}

bool IsNew(char32_t c) { return Find(kNewCharacters, c) != nullptr; }

constexpr uint32_t Bit(utf8proc_category_t category) { return uint32_t{1} << category; }

constexpr uint32_t kLetters = Bit(UTF8PROC_CATEGORY_LU) | Bit(UTF8PROC_CATEGORY_LL) |
                              Bit(UTF8PROC_CATEGORY_LT) | Bit(UTF8PROC_CATEGORY_LM) |
                              Bit(UTF8PROC_CATEGORY_LO);
constexpr uint32_t kMarks =
    Bit(UTF8PROC_CATEGORY_MN) | Bit(UTF8PROC_CATEGORY_MC) | Bit(UTF8PROC_CATEGORY_ME);
constexpr uint32_t kNumbers =
    Bit(UTF8PROC_CATEGORY_ND) | Bit(UTF8PROC_CATEGORY_NL) | Bit(UTF8PROC_CATEGORY_NO);
constexpr uint32_t kPunctuation = Bit(UTF8PROC_CATEGORY_PC) | Bit(UTF8PROC_CATEGORY_PD) |
                                  Bit(UTF8PROC_CATEGORY_PS) | Bit(UTF8PROC_CATEGORY_PE) |
                                  Bit(UTF8PROC_CATEGORY_PI) | Bit(UTF8PROC_CATEGORY_PF) |
                                  Bit(UTF8PROC_CATEGORY_PO);

bool Is(char32_t c, uint32_t categories) { return (Bit(CategoryOf(c)) & categories) != 0; }

bool IsNonAsciiSpace(char32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// True if these eight bytes go on with characters of one and two bytes. `open`: 0x80 if the byte
// before them begins a character of two, and so afterwards for the last of them; else 0.
bool IsShortUtf8(uint64_t word, uint64_t* open) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  if constexpr (std::endian::native != std::endian::little) return false;
  // The high bit of each byte says what the byte is.
  const uint64_t high = word & (kOnes * 0x80);
  const uint64_t leads = high & word << 1;                        // from 0xC0
  const uint64_t long_leads = leads & word << 2;                  // from 0xE0
  const uint64_t sound = (word & (kOnes * 0x1E)) + kOnes * 0x7E;  // of leads: from 0xC2
  const uint64_t wanted = leads << 8 | *open;                     // continuations
  if (long_leads != 0 || (leads & ~sound) != 0 || (high ^ leads) != wanted) return false;
  *open = leads >> 56;
  return true;
}

}  // namespace

void AppendChar(char32_t c, std::string* out) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

Utf8Step NextUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Kind::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1};
  const size_t length = CharLength(text[0]);
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i};
    // The second byte also rules out overlong forms, surrogates and what is above U+10FFFF.
    const uint8_t low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Kind::kInvalid, i};
  }
  return {Utf8Kind::kValid, length};
}

bool IsAscii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<uint8_t>(text[i]) >= 0x80) return false;
  }
  return true;
}

size_t FindInvalidUtf8(std::string_view text) {
  constexpr size_t kBlock = 64;
  size_t i = 0;
  while (i < text.size()) {
    uint64_t open = 0;
    size_t next = i;
    for (uint64_t word; text.size() - next >= 8; next += 8) {
      std::memcpy(&word, text.data() + next, 8);
      if (!IsShortUtf8(word, &open)) break;
    }
    i = next - (open != 0 ? 1 : 0);
    for (const size_t end = std::min(next + kBlock, text.size()); i < end;) {
      const Utf8Step step = NextUtf8(text.substr(i));
      if (step.kind != Utf8Kind::kValid) return i;
      i += step.length;
    }
  }
  return std::string_view::npos;
}

CharClass ClassOfNonAscii(char32_t c) {
  if (IsNonAsciiSpace(c)) return CharClass::kSpace;
  const uint32_t bit = Bit(CategoryOf(c));
  if ((bit & kLetters) != 0) return CharClass::kLetter;
  return (bit & kNumbers) != 0 ? CharClass::kNumber : CharClass::kOther;
}

size_t SpaceAtEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (IsContinuation(text[begin])) --begin;
    if (!IsSpace(DecodeChar(text.data() + begin))) break;
    end = begin;
  }
  return end;
}

size_t SpaceAtStart(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && IsSpace(DecodeChar(text.data() + end))) end += CharLength(text[end]);
  return end;
}

bool IsWord(char32_t c) {
  constexpr uint32_t kWord = kLetters | kMarks | Bit(UTF8PROC_CATEGORY_ND) |
                             Bit(UTF8PROC_CATEGORY_NL) | Bit(UTF8PROC_CATEGORY_PC);
  // Letters in circles and squares are symbols, but alphabetic; the joiners belong to words.
  const bool enclosed = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return Is(c, kWord) || enclosed || c == 0x200C || c == 0x200D;
}

bool IsNumeric(char32_t c) {
  return ClassOf(c) == CharClass::kNumber || (c >= 0x80 && Find(kNewerNumbers, c) != nullptr);
}

bool IsMark(char32_t c) {
  if (c < 0x300) return false;
  if (Find(kAlsoMarks, c) != nullptr) return true;
  return Is(c, kMarks) && !IsNew(c) && Find(kNotMarks, c) == nullptr;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && ClassOf(c) == CharClass::kOther;
  if (Find(kAlsoPunctuation, c) != nullptr) return true;
  return Is(c, kPunctuation) && !IsNew(c) && Find(kNotPunctuation, c) == nullptr;
}

bool IsInert(char32_t c, bool compatibility) {
  constexpr char32_t kFirst = 0x7FD;  // of all these lists
  if (c < kFirst) return false;
  return Find(kInert, c) != nullptr || IsNew(c) ||
         (compatibility && Find(kInertCompatibility, c) != nullptr);
}

void ForEachNewRange(
    core::FunctionRef<void(std::string_view category, char32_t first, char32_t last)> f) {
  static constexpr std::string_view kNames[] = {
      "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
      "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  for (const CategoryRange& range : kNewCharacters) {
    f(kNames[range.category], range.first, range.last);
  }
}

void AppendLower(char32_t c, std::string* out) {
  if (c == 0x130) {  // the one character whose lower case is two
    out->append("i\xCC\x87");
    return;
  }
  if (const LowerRange* range = Find(kNewLower, c)) {
    AppendChar(static_cast<char32_t>(static_cast<int32_t>(c) + range->to_lower), out);
    return;
  }
  AppendChar(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

}  // namespace hognose::io::tokenizer
