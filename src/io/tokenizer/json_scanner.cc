#include "io/tokenizer/json_scanner.h"

#include <charconv>

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {

bool JsonScanner::TakeNumber(int64_t* out) {
  constexpr int kDigits = 9;
  if (Peek() == '0') {
    *out = 0;
    ++at_;
    return true;
  }
  int64_t number = 0;
  const char* const first = at_;
  for (; at_ != end_ && *at_ >= '0' && *at_ <= '9' && at_ - first < kDigits; ++at_) {
    number = 10 * number + (*at_ - '0');
  }
  *out = number;
  return at_ != first;
}

bool JsonScanner::SkipValue() {
  size_t depth = 0;
  do {
    const char c = Peek();
    if (c == '"') {
      std::string_view unused;
      if (!TakeString(&unused)) return false;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (c == '}' || c == ']' || c == ',' || c == ':' || c == '\0') {
      if (depth == 0 || c == '\0') return false;
      if (c == '}' || c == ']') --depth;
      ++at_;
    } else {  // a number or a word
      while (at_ != end_ &&
             std::string_view("\"{}[],: \n\r\t").find(*at_) == std::string_view::npos)
        ++at_;
    }
  } while (depth > 0);
  return true;
}

// The string that began at `first` and has its first backslash here.
bool JsonScanner::TakeEscaped(const char* first, std::string_view* out) {
  unescaped_.clear();
  for (;;) {
    unescaped_.append(first, at_);
    if (at_ == end_) return false;
    if (*at_ == '"') break;
    if (*at_ != '\\') return false;
    ++at_;
    if (!TakeEscape()) return false;
    first = at_;
    FindStop();
  }
  ++at_;
  *out = unescaped_;
  return true;
}

// What stands behind a backslash.
bool JsonScanner::TakeEscape() {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (at_ == end_) return false;
  const char c = *at_++;
  if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
    unescaped_.push_back(kMeanings[i]);
    return true;
  }
  uint32_t unit = 0, low = 0;
  if (c != 'u' || !TakeCodeUnit(&unit)) return false;
  if (unit < 0xD800 || unit > 0xDFFF) {
    AppendChar(unit, &unescaped_);
    return true;
  }
  if (unit > 0xDBFF || end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return false;
  at_ += 2;
  if (!TakeCodeUnit(&low) || low < 0xDC00 || low > 0xDFFF) return false;
  AppendChar(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), &unescaped_);
  return true;
}

bool JsonScanner::TakeCodeUnit(uint32_t* unit) {
  if (end_ - at_ < 4) return false;
  const auto read = std::from_chars(at_, at_ + 4, *unit, 16);
  at_ += 4;
  return read.ec == std::errc() && read.ptr == at_;
}

}  // namespace hognose::io::tokenizer
