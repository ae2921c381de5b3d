#include "io/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace hognose::io {
namespace {

using core::Result;
using core::Status;
using core::Value;

constexpr std::string_view kInfinity = "Infinity";
constexpr std::string_view kNan = "NaN";

// A bare word that was replaced by a number of the same length.
struct Word {
  size_t offset;
  double value;
};

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// True if a JSON value may end before text[i].
bool EndsValue(std::string_view text, size_t i) {
  return i == text.size() || IsSpace(text[i]) || text[i] == ',' || text[i] == ']' || text[i] == '}';
}

// True if a JSON value may begin at text[i].
bool BeginsValue(std::string_view text, size_t i) {
  return i == 0 || IsSpace(text[i - 1]) || text[i - 1] == ',' || text[i - 1] == '[' ||
         text[i - 1] == ':';
}

// The offset after the string that opens at text[i], or the end of the text.
size_t SkipString(std::string_view text, size_t i) {
  for (++i;; ++i) {
    i = text.find('"', i);
    if (i == std::string_view::npos) return text.size();
    size_t slashes = 0;
    while (text[i - 1 - slashes] == '\\') ++slashes;  // ends at the opening quote at the latest
    if (slashes % 2 == 0) return i + 1;
  }
}

double WordValue(char first, bool negative) {
  using Limits = std::numeric_limits<double>;
  if (first == kNan[0]) return Limits::quiet_NaN();
  return negative ? -Limits::infinity() : Limits::infinity();
}

// Replaces bare Infinity, -Infinity and NaN by numbers of the same length in a copy of the text,
// and gives their places, in order. Leaves `copy` empty if there are none.
std::vector<Word> ReplaceWords(std::string_view text, std::string* copy) {
  std::vector<Word> words;
  if (text.find(kInfinity) == std::string_view::npos && text.find(kNan) == std::string_view::npos) {
    return words;
  }
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = SkipString(text, i);
      continue;
    }
    const std::string_view word = c == kInfinity[0] ? kInfinity : kNan;
    if (c != word[0] || !text.substr(i).starts_with(word)) {
      ++i;
      continue;
    }
    const bool negative = c == kInfinity[0] && i > 0 && text[i - 1] == '-';
    const size_t begin = negative ? i - 1 : i;
    if (BeginsValue(text, begin) && EndsValue(text, i + word.size())) {
      if (words.empty()) *copy = text;
      copy->replace(i, word.size(), word.size(), '1');
      words.push_back({begin, WordValue(c, negative)});
    }
    i += word.size();
  }
  return words;
}

// The keys of one object, to find duplicates: open addressing over the indices of its members.
class KeySet {
 public:
  // False if an earlier member has the key of the last one.
  bool AddLast(const Value::Object& members) {
    if (members.size() > kLinear) {
      if (2 * members.size() > slots_.size()) Grow(members);
      return Insert(members, members.size() - 1);
    }
    const auto same = [&](const Value::Member& m) { return m.first == members.back().first; };
    return std::none_of(members.begin(), members.end() - 1, same);
  }

 private:
  static constexpr size_t kLinear = 12;  // below this, comparing all is faster than hashing

  void Grow(const Value::Object& members) {
    slots_.assign(std::max<size_t>(64, 4 * std::max(slots_.size(), members.size())), 0);
    size_t power = 1;
    while (power < slots_.size()) power *= 2;
    slots_.resize(power, 0);
    for (size_t i = 0; i + 1 < members.size(); ++i) Insert(members, i);
  }

  bool Insert(const Value::Object& members, size_t index) {
    const std::string& key = members[index].first;
    const size_t mask = slots_.size() - 1;
    size_t slot = std::hash<std::string_view>()(key) & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
      if (members[slots_[slot] - 1].first == key) return false;
    }
    slots_[slot] = static_cast<uint32_t>(index + 1);
    return true;
  }

  std::vector<uint32_t> slots_;  // index + 1; 0 is free
};

// Takes the parser's events and builds the tree. The interface is Boost.JSON's.
class Builder {
 public:
  static constexpr size_t max_array_size = std::numeric_limits<uint32_t>::max() / 2;
  static constexpr size_t max_object_size = std::numeric_limits<uint32_t>::max() / 2;
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max() / 2;
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max() / 2;
  using Error = boost::json::error_code;
  using View = boost::json::string_view;

  Builder(const char* begin, const std::vector<Word>* words) : begin_(begin), words_(words) {
    frames_.reserve(kMaxJsonDepth);
  }

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_array_begin(Error&) { return frames_.emplace_back(), true; }
  bool on_array_end(size_t, Error&) {
    Value::Array array = std::move(frames_.back().array);
    frames_.pop_back();
    return Add(std::move(array));
  }
  bool on_object_begin(Error&) { return frames_.emplace_back().is_object = true; }
  bool on_object_end(size_t, Error&) {
    Value::Object object = std::move(frames_.back().object);
    frames_.pop_back();
    return Add(std::move(object));
  }
  bool on_string_part(View s, size_t, Error&) { return part_.append(s.data(), s.size()), true; }
  bool on_string(View s, size_t, Error&) { return Add(TakeString(s)); }
  bool on_key_part(View s, size_t, Error&) { return part_.append(s.data(), s.size()), true; }
  bool on_key(View s, size_t, Error& error) {
    Frame& frame = frames_.back();
    frame.object.emplace_back().first = TakeString(s);
    if (frame.keys.AddLast(frame.object)) return true;
    return Fail(fmt::format("got the key \"{}\" twice, want it once", frame.object.back().first),
                error);
  }
  bool on_number_part(View, Error&) { return true; }
  bool on_int64(int64_t i, View text, Error&) {
    double value = 0;
    return TakeWord(text, &value) ? Add(value) : Add(i);
  }
  bool on_uint64(uint64_t, View text, Error& error) { return on_double(0, text, error); }
  bool on_double(double, View text, Error& error) {
    // The parser's own conversion isn't correctly rounded.
    double value = 0;
    const auto end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc::result_out_of_range) {
      if (IsHuge({text.data(), text.size()})) {
        return Fail(fmt::format("got {}, want a number in the range of double",
                                std::string_view(text.data(), std::min<size_t>(text.size(), 40))),
                    error);
      }
      value = text.front() == '-' ? -0.0 : 0.0;
    }
    return Add(value);
  }
  bool on_bool(bool b, Error&) { return Add(b); }
  bool on_null(Error&) { return Add(); }
  bool on_comment_part(View, Error&) { return true; }
  bool on_comment(View, Error&) { return true; }

  Value& root() { return root_; }
  const std::string& message() const { return message_; }

 private:
  struct Frame {
    bool is_object = false;
    Value::Array array;
    Value::Object object;
    KeySet keys;
  };

  bool Fail(std::string message, Error& error) {
    message_ = std::move(message);
    error = boost::json::error::syntax;
    return false;
  }

  // Makes the next value in its place.
  template <typename... Content>
  bool Add(Content&&... content) {
    if (frames_.empty()) {
      root_ = Value(std::forward<Content>(content)...);
    } else if (frames_.back().is_object) {
      frames_.back().object.back().second = Value(std::forward<Content>(content)...);
    } else {
      frames_.back().array.emplace_back(std::forward<Content>(content)...);
    }
    return true;
  }

  std::string TakeString(View last) {
    if (part_.empty()) return {last.data(), last.size()};
    part_.append(last.data(), last.size());
    return std::exchange(part_, {});
  }

  // True if this number stands for a bare word.
  bool TakeWord(View text, double* value) {
    if (next_word_ == words_->size()) return false;
    const Word& word = (*words_)[next_word_];
    if (static_cast<size_t>(text.data() - begin_) != word.offset) return false;
    *value = word.value;
    ++next_word_;
    return true;
  }

  // Of a number outside the range of double: true if it is too large, false if it is too small.
  static bool IsHuge(std::string_view number) {
    // Its decimal exponent: that of the first digit that isn't 0, and the one written.
    double exponent = 0;
    if (const size_t e = number.find_first_of("eE"); e != std::string_view::npos) {
      const size_t digits = e + (number[e + 1] == '+' ? 2 : 1);
      std::from_chars(number.data() + digits, number.data() + number.size(), exponent);
      number = number.substr(0, e);
    }
    const size_t first = number.find_first_of("123456789");
    const size_t point = std::min(number.find('.'), number.size());
    return exponent + static_cast<double>(point) - static_cast<double>(first) > 0;
  }

  const char* begin_;
  const std::vector<Word>* words_;
  size_t next_word_ = 0;
  std::vector<Frame> frames_;
  std::string part_;
  Value root_;
  std::string message_;
};

Status ErrorAt(std::string_view where, std::string_view text, size_t offset, std::string message) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto is_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  return Status::Failed(fmt::format(
      "{}: line {} column {}: {}", where, std::count(before.begin(), before.end(), '\n') + 1,
      std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start), before.end(),
                    is_character) +
          1,
      message));
}

// What stands at the place of an error, for messages.
std::string Excerpt(std::string_view text, size_t offset) {
  if (offset >= text.size()) return "the end of the text";
  const auto c = static_cast<uint8_t>(text[offset]);
  if (c < 0x20 || c == 0x7F) return fmt::format("the byte 0x{:02X}", c);
  size_t length = 1;
  while (offset + length < text.size() && (text[offset + length] & 0xC0) == 0x80) ++length;
  return fmt::format("'{}'", text.substr(offset, length));
}

std::string Explain(boost::json::error code, std::string_view text, size_t offset) {
  using boost::json::error;
  switch (code) {
    case error::incomplete:
      return "got the end of the text, want more JSON";
    case error::extra_data:
      return fmt::format("got {} after the value, want the end of the text", Excerpt(text, offset));
    case error::too_deep:
      return fmt::format("got nesting deeper than {} levels", kMaxJsonDepth);
    case error::exponent_overflow:
      return "got an exponent out of range, want a number in the range of double";
    case error::illegal_leading_surrogate:
    case error::illegal_trailing_surrogate:
    case error::expected_utf16_escape:
      return "got half of a surrogate pair, want a \\uXXXX\\uXXXX pair";
    default:
      return fmt::format("got {}, want valid JSON", Excerpt(text, offset));
  }
}

}  // namespace

Result<Value> ParseJson(std::string_view text, std::string_view where) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    return ErrorAt(where, text, 0, "got a byte order mark, want JSON");
  }
  if (const size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    return ErrorAt(where, text, valid,
                   fmt::format("got invalid UTF-8 (byte 0x{:02X})",
                               static_cast<unsigned>(static_cast<uint8_t>(text[valid]))));
  }
  std::string copy;
  const std::vector<Word> words = ReplaceWords(text, &copy);
  std::string_view input = words.empty() ? text : std::string_view(copy);
  if (input.data() == nullptr) input = "";  // the parser takes no null pointer
  boost::json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::json::basic_parser<Builder> parser(options, input.data(), &words);
  boost::json::error_code error;
  const size_t end = parser.write_some(false, input.data(), input.size(), error);
  if (!error && end < input.size()) error = boost::json::error::extra_data;
  if (error) {
    std::string message = parser.handler().message();
    if (message.empty()) {
      message = Explain(static_cast<boost::json::error>(error.value()), text, end);
    }
    return ErrorAt(where, text, end, std::move(message));
  }
  return std::move(parser.handler().root());
}

}  // namespace hognose::io
