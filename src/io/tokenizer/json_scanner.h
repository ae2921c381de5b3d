// JsonScanner: steps through JSON text without building anything.
//
// It knows only what large tables are made of. False means that something else stands there (right
// or wrong); the place is then lost.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hognose::io::tokenizer {

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  size_t offset() const { return static_cast<size_t>(at_ - begin_); }

  // The next character behind white space, which stays; 0 at the end.
  char Peek() {
    for (; at_ != end_; ++at_) {
      if (*at_ > ' ') return *at_;
      if (*at_ == ' ') SkipIndent();
      if (*at_ != ' ' && *at_ != '\n' && *at_ != '\r' && *at_ != '\t') return *at_;
    }
    return '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  // After an element: whether another one follows (true) or the list ends with `close`.
  bool TakeNext(char close, bool* more) {
    *more = Take(',');
    return *more || Take(close);
  }

  // The content of a string, which holds until the next one is taken. Whether it is UTF-8 is not
  // looked at; escapes always give UTF-8.
  bool TakeString(std::string_view* out) {
    if (!Take('"')) return false;
    const char* const first = at_;
    FindStop();
    if (at_ == end_) return false;
    *out = {first, static_cast<size_t>(at_ - first)};
    if (*at_ == '\\') return TakeEscaped(first, out);
    return *at_++ == '"';
  }
  // A whole number below 10^9.
  bool TakeNumber(int64_t* out);
  // A value of any kind. Of valid text exactly one value is skipped.
  bool SkipValue();

 private:
  static constexpr uint64_t kOnes = 0x0101010101010101u;
  static constexpr uint64_t kHigh = 0x8080808080808080u;

  // Goes on over spaces, eight at a time; some of them may be left.
  void SkipIndent() {
    if constexpr (std::endian::native == std::endian::little) {
      for (uint64_t word; end_ - at_ > 8; at_ += 8) {
        std::memcpy(&word, at_, 8);
        word ^= kOnes * ' ';
        if (word != 0) {
          at_ += std::countr_zero(word) / 8;
          return;
        }
      }
    }
  }
  // Goes to the first quote, backslash or control character.
  void FindStop() {
    if constexpr (std::endian::native == std::endian::little) {
      for (uint64_t word; end_ - at_ >= 8; at_ += 8) {
        std::memcpy(&word, at_, 8);
        const uint64_t quote = word ^ (kOnes * '"');
        const uint64_t slash = word ^ (kOnes * '\\');
        // A byte's high bit is set if it is 0 (or below 0x20); bytes above such a one may be too.
        const uint64_t stop = (((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash) |
                               ((word - kOnes * 0x20) & ~word)) &
                              kHigh;
        if (stop != 0) {
          at_ += std::countr_zero(stop) / 8;
          return;
        }
      }
    }
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<uint8_t>(*at_) >= 0x20) ++at_;
  }
  bool TakeEscaped(const char* first, std::string_view* out);
  bool TakeEscape();
  bool TakeCodeUnit(uint32_t* unit);

  const char* begin_;
  const char* at_;
  const char* end_;
  std::string unescaped_;
};

}  // namespace hognose::io::tokenizer
