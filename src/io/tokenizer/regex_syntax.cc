#include "io/tokenizer/regex_syntax.h"

#include <vector>

#include "io/tokenizer/regex_class.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// \w as it is outside brackets: there Oniguruma also takes these six for word characters.
CharSet SetOfBareWord() {
  CharSet set = *SetOfEscape('w');
  set.items += "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
  return set;
}

class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  core::Result<std::string> Run() {
    while (i_ < text_.size()) HOGNOSE_TRY(Next());
    if (groups_.size() > 1) return core::Status::Failed("missing )");
    out_.append(groups_.back().options, ')');
    return std::move(out_);
  }

 private:
  static constexpr size_t kNone = std::string::npos;
  struct Group {
    size_t begin;  // in out_
    bool caseless = false;
    size_t options = 0;  // groups "(?i:" opened for options inside it
  };

  core::Status Next() {
    const char c = text_[i_];
    switch (c) {
      case '\\':
        return Escape();
      case '[': {
        const size_t begin = i_;
        HOGNOSE_ASSIGN(const std::string atom, ReadClass(text_, &i_));
        HOGNOSE_TRY(CheckCase(begin));
        return Emit(atom);
      }
      case '(':
        return Open();
      case ')':
        return Close();
      case '|':
        out_ += text_[i_++];
        atom_ = kNone;
        return {};
      case '*':
      case '+':
      case '?':
      case '{':
        return Quantify();
      default: {
        const size_t length = CharLength(c);
        i_ += length;
        return Emit(text_.substr(i_ - length, length));
      }
    }
  }

  // The set that stands from `begin` to i_.
  core::Status CheckCase(size_t begin) const {
    const std::string_view set = text_.substr(begin, i_ - begin);
    if (!groups_.back().caseless || !DependsOnCase(set)) return {};
    return core::Status::Failed("(?i) with " + std::string(set) + " is not supported");
  }

  core::Status Emit(std::string_view atom) {
    atom_ = out_.size();
    quantified_ = false;
    out_ += atom;
    return {};
  }

  core::Status Escape() {
    if (++i_ >= text_.size()) return core::Status::Failed("\\ at the end");
    const char letter = text_[i_];
    if (letter == 'w' || letter == 'W') {
      ++i_;
      return Emit(SetOfBareWord().Atom(letter == 'W'));
    }
    if (const auto set = SetOfEscape(letter)) {
      ++i_;
      return Emit(set->Atom(false));
    }
    if ((letter == 'p' || letter == 'P') && text_.substr(i_ + 1).starts_with('{')) {
      const size_t begin = i_++ - 1;
      HOGNOSE_ASSIGN(const CharSet set, ReadProperty(text_, &i_, letter == 'P'));
      HOGNOSE_TRY(CheckCase(begin));
      return Emit(set.Atom(false));
    }
    if (letter == 'x' || letter == 'u') {
      HOGNOSE_ASSIGN(const std::string character, ReadCodePoint(text_, &i_));
      return Emit(character);
    }
    return EscapeOther(letter);
  }

  core::Status EscapeOther(char letter) {
    ++i_;
    const std::string word = SetOfBareWord().Atom(false);
    switch (letter) {
      case 'b':
        return Emit("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
      case 'B':
        return Emit("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
      case 'v':
        return Emit("\\x{B}");
      case 'O':
        return Emit("(?s:.)");
      case 'c':
      case 'C':
      case 'M':
      case 'y':
      case 'Y':
      case 'o':
        return core::Status::Failed("\\" + std::string(1, letter) + " is not supported");
      default:
        break;
    }
    if (letter == 'k' || letter == 'g') {  // a reference; its name follows
      const size_t end = text_.substr(i_).starts_with('<') ? text_.find('>', i_) : kNone;
      if (end == kNone) return core::Status::Failed("a reference without <name>");
      const std::string_view name = text_.substr(i_, end + 1 - i_);
      i_ = end + 1;
      return Emit("\\" + std::string(1, letter) + std::string(name));
    }
    if (IsDigit(letter)) {
      const size_t begin = i_ - 1;
      while (i_ < text_.size() && IsDigit(text_[i_]) && i_ - begin < 3) ++i_;
      return Emit("\\" + std::string(text_.substr(begin, i_ - begin)));
    }
    const size_t length = CharLength(letter);
    const std::string_view c = text_.substr(i_ - 1, length);
    i_ += length - 1;
    const bool known = std::string_view("tnrfaeRXNKAZzG").find(letter) != std::string_view::npos;
    const bool plain = length > 1 || (IsLetter(letter) && !known);
    return Emit((plain ? "" : "\\") + std::string(c));
  }

  core::Status Open() {
    const std::string_view rest = text_.substr(i_);
    if (rest.starts_with("(*")) return core::Status::Failed("(* is not supported");
    if (rest.starts_with("(?#")) {
      const size_t end = text_.find(')', i_);
      if (end == kNone) return core::Status::Failed("missing )");
      i_ = end + 1;
      return {};
    }
    static constexpr std::string_view kOpenings[] = {"(?:",  "(?=",  "(?!", "(?>",
                                                     "(?<=", "(?<!", "(?<", "(?'"};
    for (const std::string_view opening : kOpenings) {
      if (rest.starts_with(opening)) return Push(opening);
    }
    return rest.starts_with("(?") ? Options() : Push("(");
  }

  core::Status Push(std::string_view opening) {
    groups_.push_back({out_.size(), groups_.back().caseless});
    out_ += opening;
    i_ += opening.size();
    if (opening == "(?<" || opening == "(?'") {
      while (i_ < text_.size() && text_[i_] != '>' && text_[i_] != '\'') out_ += text_[i_++];
      if (i_ < text_.size()) out_ += text_[i_++];
    }
    atom_ = kNone;
    return {};
  }

  // (?im-x) and (?im-x:...). Oniguruma's m is what others call s.
  core::Status Options() {
    std::string options = "(?";
    bool caseless = groups_.back().caseless;
    bool on = true;
    size_t end = i_ + 2;
    for (; end < text_.size() && text_[end] != ')' && text_[end] != ':'; ++end) {
      const char option = text_[end];
      if (option != 'i' && option != 'm' && option != 'x' && option != '-') {
        return core::Status::Failed("(?" + std::string(1, option) + " is not supported");
      }
      options += option == 'm' ? 's' : option;
      if (option == '-') on = false;
      if (option == 'i') caseless = on;
    }
    if (end >= text_.size()) return core::Status::Failed("missing )");
    options += ':';
    if (text_[end] == ':') {
      groups_.push_back({out_.size(), caseless});
    } else {
      groups_.back().caseless = caseless;
      ++groups_.back().options;  // to the end of the group around it, over every |
    }
    i_ = end + 1;
    out_ += options;
    atom_ = kNone;
    return {};
  }

  core::Status Close() {
    if (groups_.size() == 1) return core::Status::Failed("unmatched )");
    const Group group = groups_.back();
    groups_.pop_back();
    out_.append(group.options + 1, ')');
    ++i_;
    atom_ = group.begin;
    quantified_ = false;
    return {};
  }

  // A quantifier as PCRE2 writes it; empty if there is none at i_ (a brace that is only a brace).
  std::string ReadQuantifier() {
    if (text_[i_] != '{') return std::string(1, text_[i_++]);
    size_t j = i_ + 1;
    std::string low, high;
    while (j < text_.size() && IsDigit(text_[j])) low += text_[j++];
    const bool comma = j < text_.size() && text_[j] == ',';
    if (comma) {
      ++j;
      while (j < text_.size() && IsDigit(text_[j])) high += text_[j++];
    }
    if (j >= text_.size() || text_[j] != '}' || (low.empty() && high.empty())) return {};
    i_ = j + 1;
    if (low.empty()) low = "0";
    return comma ? "{" + low + "," + high + "}" : "{" + low + "}";
  }

  core::Status Quantify() {
    const std::string quantifier = ReadQuantifier();
    if (quantifier.empty()) {
      ++i_;
      return Emit("\\{");
    }
    if (atom_ == kNone) return core::Status::Failed("nothing to repeat");
    // x** is x*, and so are x+* and x?*; written out, they would take exponential time.
    const bool star = quantifier == "*" && quantified_ && simple_;
    if (star) out_.pop_back();
    if (quantified_ && !star) Wrap();
    out_ += quantifier;
    quantified_ = true;
    const bool interval = quantifier[0] == '{';
    const bool fixed = interval && quantifier.find(',') == kNone;
    const char suffix = i_ < text_.size() ? text_[i_] : '\0';
    if ((suffix == '?' && !fixed) || (suffix == '+' && !interval)) {
      out_ += suffix;
      ++i_;
    }
    simple_ = !interval && suffix != '?' && suffix != '+';
    return {};
  }

  // Makes what is quantified one atom, so that it can be quantified again.
  void Wrap() {
    out_.insert(atom_, "(?:");
    out_ += ')';
  }

  std::string_view text_;
  size_t i_ = 0;
  std::string out_;
  std::vector<Group> groups_ = {{0}};
  size_t atom_ = kNone;  // where the last atom begins in out_
  bool quantified_ = false;
  bool simple_ = false;  // by *, + or ? alone
};

}  // namespace

core::Result<std::string> TranslateRegex(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace hognose::io::tokenizer
