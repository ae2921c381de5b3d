#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "io/json.h"

namespace hognose::io {
namespace {

using core::Value;

// The length of the UTF-8 character at text[i], 0 if there is none.
size_t CharacterLength(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> unsigned {
    return i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : 0u;
  };
  const auto tail = [&](size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
    if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogates
    return tail(1) && tail(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
    return tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

void PrintString(std::string_view text, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterLength(text, i);
    const auto c = static_cast<uint8_t>(text[i]);
    if (length == 0) {
      out->append("\xEF\xBF\xBD");
    } else if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(text[i]);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c < 0x20) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", c);
    } else {
      out->append(text, i, length);
    }
    i += length == 0 ? 1 : length;
  }
  out->push_back('"');
}

void PrintDouble(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("NaN");
  } else if (std::isinf(value)) {
    out->append(value < 0 ? "-Infinity" : "Infinity");
  } else {
    char digits[32];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    const std::string_view text(digits, static_cast<size_t>(end - digits));
    out->append(text);
    if (text.find_first_of(".e") == std::string_view::npos) out->append(".0");  // not an integer
  }
}

class Printer {
 public:
  Printer(int indent, std::string* out) : indent_(indent), out_(out) {}

  void Print(const Value& value, int depth) {
    if (const auto* b = value.AsBool()) {
      out_->append(*b ? "true" : "false");
    } else if (const auto* i = value.AsInt()) {
      fmt::format_to(std::back_inserter(*out_), "{}", *i);
    } else if (double d; value.AsDouble(&d)) {
      PrintDouble(d, out_);
    } else if (const auto* s = value.AsString()) {
      PrintString(*s, out_);
    } else if (const auto* array = value.AsArray()) {
      PrintItems('[', ']', *array, depth, [&](const Value& v) { Print(v, depth + 1); });
    } else if (const auto* object = value.AsObject()) {
      PrintItems('{', '}', *object, depth, [&](const Value::Member& member) {
        PrintString(member.first, out_);
        out_->append(indent_ > 0 ? ": " : ":");
        Print(member.second, depth + 1);
      });
    } else {
      out_->append("null");
    }
  }

 private:
  template <typename Items, typename PrintItem>
  void PrintItems(char open, char close, const Items& items, int depth, PrintItem print) {
    out_->push_back(open);
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_->push_back(',');
      first = false;
      NewLine(depth + 1);
      print(item);
    }
    if (!items.empty()) NewLine(depth);
    out_->push_back(close);
  }

  void NewLine(int depth) {
    if (indent_ <= 0) return;
    out_->push_back('\n');
    out_->append(static_cast<size_t>(indent_) * static_cast<size_t>(depth), ' ');
  }

  int indent_;
  std::string* out_;
};

}  // namespace

std::string ToJson(const Value& value, int indent) {
  std::string out;
  Printer(indent, &out).Print(value, 0);
  return out;
}

size_t ValidUtf8Prefix(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    uint64_t word = 0x80;
    if (text.size() - i >= sizeof(word)) std::memcpy(&word, text.data() + i, sizeof(word));
    if ((word & 0x8080808080808080u) == 0) {  // eight ASCII characters
      i += sizeof(word);
      continue;
    }
    const size_t length = CharacterLength(text, i);
    if (length == 0) return i;
    i += length;
  }
  return text.size();
}

}  // namespace hognose::io
