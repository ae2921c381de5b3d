#include "io/tokenizer/gpt2_split.h"

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

CharClass ClassAt(std::string_view text, size_t i) { return ClassOf(DecodeChar(text.data() + i)); }

// Where the run of characters of class `c` that begins at `i` ends.
size_t RunEnd(std::string_view text, size_t i, CharClass c) {
  while (i < text.size() && ClassAt(text, i) == c) i += CharLength(text[i]);
  return i;
}

// The length of the ending "'s", "'t", "'re", ... at `i`, or 0.
size_t ContractionLength(std::string_view text, size_t i) {
  if (i + 1 >= text.size()) return 0;
  const char first = text[i + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (i + 2 >= text.size()) return 0;
  const char second = text[i + 2];
  const bool pair =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return pair ? 3 : 0;
}

}  // namespace

size_t Gpt2WordEnd(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    if (const size_t length = ContractionLength(text, begin); length > 0) return begin + length;
  }
  const size_t body = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const CharClass c = ClassAt(text, body);
  if (c != CharClass::kSpace) return RunEnd(text, body, c);
  // White space: all of it at the end of the text, else all but the last character (which may
  // belong to the next word), but at least one.
  size_t last = begin;
  size_t end = begin;
  while (end < text.size() && ClassAt(text, end) == CharClass::kSpace) {
    last = end;
    end += CharLength(text[end]);
  }
  return end == text.size() || last == begin ? end : last;
}

}  // namespace hognose::io::tokenizer
