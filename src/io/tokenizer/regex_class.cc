#include "io/tokenizer/regex_class.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

constexpr int kMaxNesting = 32;

bool IsAsciiAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string Hex(char32_t c) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), "\\x{%X}", static_cast<unsigned>(c));
  return buffer;
}

// Characters of these general categories ("L", "Nd") that older tables do not have.
std::string NewCharacters(std::initializer_list<std::string_view> categories) {
  std::string items;
  ForEachNewRange([&](std::string_view category, char32_t first, char32_t last) {
    for (const std::string_view wanted : categories) {
      if (category.starts_with(wanted)) items += Hex(first) + "-" + Hex(last);
    }
  });
  return items;
}

CharSet Negated(const CharSet& set) { return {"", {set.Atom(true)}}; }

CharSet SetOfCategory(std::string_view category) {
  return {"\\p{" + std::string(category) + "}" + NewCharacters({category}), {}};
}

CharSet SetOfWord() {
  return {"\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" + NewCharacters({"L", "M", "Nd", "Nl", "Pc"}), {}};
}

// Marks that have become alphabetic since Unicode 14.
constexpr std::string_view kNewAlphabeticMarks =
    "\\x{363}-\\x{36F}\\x{897}\\x{C04}\\x{CF3}\\x{F82}\\x{F83}\\x{1DD3}-\\x{1DE6}\\x{10D69}"
    "\\x{10EFC}\\x{11080}\\x{11081}\\x{11241}\\x{113B8}-\\x{113C0}\\x{113C2}\\x{113C5}"
    "\\x{113C7}-\\x{113CA}\\x{113CC}\\x{113CD}\\x{11F00}\\x{11F01}\\x{11F03}"
    "\\x{11F34}-\\x{11F3A}\\x{11F3E}-\\x{11F40}\\x{1611E}-\\x{1612E}\\x{1E08F}";

CharSet SetOfAlphabetic() {
  return {"\\p{Alphabetic}" + std::string(kNewAlphabeticMarks) + NewCharacters({"L", "Nl"}), {}};
}

CharSet SetOfScript(std::string_view name) {
  std::string items = "\\p{sc:" + std::string(name) + "}";
  // Ideographs of Unicode 15.0 and 15.1.
  if (name == "han" || name == "hani") {
    items += "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
  }
  return {items, {}};
}

struct CategoryName {
  std::string_view name;  // lower case, without spaces, hyphens and underscores
  std::string_view category;
};
constexpr CategoryName kCategories[] = {
    {"letter", "L"},
    {"casedletter", "L&"},
    {"lc", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
};
constexpr std::string_view kShortCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};

// Properties that PCRE2 knows under the same name. What is in no list is a script.
constexpr std::string_view kBinaryProperties[] = {"any",
                                                  "ascii",
                                                  "uppercase",
                                                  "lowercase",
                                                  "whitespace",
                                                  "ideographic",
                                                  "unifiedideograph",
                                                  "math",
                                                  "dash",
                                                  "hexdigit",
                                                  "asciihexdigit",
                                                  "idstart",
                                                  "idcontinue",
                                                  "xidstart",
                                                  "xidcontinue",
                                                  "cased",
                                                  "caseignorable",
                                                  "diacritic",
                                                  "extender",
                                                  "quotationmark",
                                                  "emoji",
                                                  "emojipresentation",
                                                  "emojimodifier",
                                                  "extendedpictographic",
                                                  "defaultignorablecodepoint",
                                                  "variationselector",
                                                  "joincontrol",
                                                  "radical",
                                                  "bidimirrored"};

std::string Simplify(std::string_view name) {
  std::string simple;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    simple.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  return simple;
}

// [:alpha:] and \p{Alpha}.
std::optional<CharSet> SetOfPosix(std::string_view name, bool bracket) {
  if (name == "alpha" || name == "alphabetic") return SetOfAlphabetic();
  if (name == "alnum") {
    CharSet set = SetOfAlphabetic();
    set.Add(SetOfCategory("Nd"));
    return set;
  }
  if (name == "digit") return SetOfCategory("Nd");
  if (name == "space") return CharSet{"\\p{wspace}", {}};
  if (name == "blank") return CharSet{"\\t\\p{Zs}", {}};
  if (name == "cntrl") return CharSet{"\\p{Cc}", {}};
  if (name == "upper") return CharSet{"\\p{Uppercase}" + NewCharacters({"Lu"}), {}};
  if (name == "lower") return CharSet{"\\p{Lowercase}" + NewCharacters({"Ll"}), {}};
  if (name == "xdigit") return CharSet{"0-9A-Fa-f", {}};
  if (name == "word") return SetOfWord();
  if (name == "ascii") return CharSet{"\\x{0}-\\x{7F}", {}};
  if (name == "punct") {
    CharSet set = SetOfCategory("P");
    if (bracket) set.Add(SetOfCategory("S"));
    return set;
  }
  return std::nullopt;
}

core::Status Unfinished(std::string_view what) {
  return core::Status::Failed(std::string(what) + " does not end");
}

class ClassReader {
 public:
  ClassReader(std::string_view text, size_t* i) : text_(text), i_(*i) {}

  // From '[' to ']'.
  core::Result<std::string> Read(int nesting) {
    if (nesting > kMaxNesting) return core::Status::Failed("character classes nested too deep");
    ++i_;
    const bool negate = Take("^");
    std::vector<CharSet> operands(1);  // of &&
    for (bool first = true;; first = false) {
      if (i_ >= text_.size()) return Unfinished("a character class");
      if (text_[i_] == ']' && !first) break;
      if (Take("&&")) {
        operands.emplace_back();
        continue;
      }
      HOGNOSE_TRY(ReadItem(nesting, &operands.back()));
    }
    ++i_;
    if (operands.size() == 1) return operands[0].Atom(negate);
    std::string atom = "(?:";
    for (size_t k = 0; k + 1 < operands.size(); ++k) {
      atom += "(?=" + operands[k].Atom(false) + ")";
    }
    atom += operands.back().Atom(false) + ")";
    return negate ? "(?:(?!" + atom + ")(?s:.))" : atom;
  }

  size_t position() const { return i_; }

 private:
  bool Take(std::string_view token) {
    if (!text_.substr(i_).starts_with(token)) return false;
    i_ += token.size();
    return true;
  }

  core::Status ReadItem(int nesting, CharSet* set) {
    if (text_.substr(i_).starts_with("[:")) {
      const size_t end = text_.find(":]", i_);
      std::string_view name = text_.substr(i_ + 2, end == text_.npos ? 0 : end - i_ - 2);
      const bool negate = name.starts_with('^');
      if (negate) name.remove_prefix(1);
      if (const auto posix = SetOfPosix(name, true)) {
        set->Add(negate ? Negated(*posix) : *posix);
        i_ = end + 2;
        return {};
      }
      if (name == "graph" || name == "print") {
        return core::Status::Failed("[:" + std::string(name) + ":] is not supported");
      }
    }
    if (text_[i_] == '[') {
      HOGNOSE_ASSIGN(std::string atom, Read(nesting + 1));
      set->atoms.push_back(std::move(atom));
      return {};
    }
    HOGNOSE_ASSIGN(const std::string low, ReadCharOrSet(set));
    if (low.empty()) return {};
    const bool range = i_ + 1 < text_.size() && text_[i_] == '-' && text_[i_ + 1] != ']' &&
                       !text_.substr(i_ + 1).starts_with("&&") && text_[i_ + 1] != '[';
    set->items += low;
    if (!range) return {};
    ++i_;
    HOGNOSE_ASSIGN(const std::string high, ReadCharOrSet(set));
    set->items += high.empty() ? "\\-" : "-" + high;
    return {};
  }

  // One character, written for a PCRE2 class; or empty, if it was a set, which is added.
  core::Result<std::string> ReadCharOrSet(CharSet* set) {
    if (text_[i_] != '\\') {
      const size_t length = CharLength(text_[i_]);
      const std::string_view c = text_.substr(i_, length);
      i_ += length;
      return (length == 1 && !IsAsciiAlnum(c[0]) && c[0] > ' ' ? "\\" : "") + std::string(c);
    }
    if (++i_ >= text_.size()) return Unfinished("an escape");
    const char letter = text_[i_];
    if (const auto escape = SetOfEscape(letter)) {
      ++i_;
      set->Add(*escape);
      return std::string();
    }
    if ((letter == 'p' || letter == 'P') && text_.substr(i_ + 1).starts_with('{')) {
      ++i_;
      HOGNOSE_ASSIGN(const CharSet property, ReadProperty(text_, &i_, letter == 'P'));
      set->Add(property);
      return std::string();
    }
    if (letter == 'x' || letter == 'u') return ReadCodePoint(text_, &i_);
    if (letter == 'b') return ++i_, std::string("\\x{8}");
    if (letter == 'v') return ++i_, std::string("\\x{B}");
    if (letter >= '0' && letter <= '7') return ReadOctal();
    const size_t length = CharLength(letter);
    const std::string_view c = text_.substr(i_, length);
    i_ += length;
    const bool keep = std::string_view("tnrfae").find(letter) != std::string_view::npos ||
                      (length == 1 && !IsAsciiAlnum(letter));
    return (keep ? "\\" : "") + std::string(c);
  }

  std::string ReadOctal() {
    char32_t value = 0;
    for (int k = 0; k < 3 && i_ < text_.size() && text_[i_] >= '0' && text_[i_] <= '7'; ++k) {
      value = value * 8 + static_cast<char32_t>(text_[i_++] - '0');
    }
    return Hex(value);
  }

  std::string_view text_;
  size_t i_;
};

}  // namespace

void CharSet::Add(const CharSet& other) {
  items += other.items;
  atoms.insert(atoms.end(), other.atoms.begin(), other.atoms.end());
}

std::string CharSet::Atom(bool negate) const {
  std::string choice;
  for (const std::string& atom : atoms) choice += (choice.empty() ? "" : "|") + atom;
  if (choice.empty()) return (negate ? "[^" : "[") + items + "]";
  if (!negate) return "(?:" + (items.empty() ? "" : "[" + items + "]|") + choice + ")";
  return "(?:(?!" + choice + ")" + (items.empty() ? "(?s:.)" : "[^" + items + "]") + ")";
}

std::optional<CharSet> SetOfEscape(char letter) {
  switch (letter) {
    case 'w':
      return SetOfWord();
    case 's':
      return CharSet{"\\p{wspace}", {}};
    case 'd':
      return SetOfCategory("Nd");
    case 'h':
      return CharSet{"0-9A-Fa-f", {}};
    case 'S':
      return CharSet{"\\P{wspace}", {}};
    case 'W':
      return Negated(SetOfWord());
    case 'D':
      return Negated(SetOfCategory("Nd"));
    case 'H':
      return Negated({"0-9A-Fa-f", {}});
    default:
      return std::nullopt;
  }
}

core::Result<CharSet> ReadProperty(std::string_view text, size_t* i, bool negate) {
  const size_t end = text.find('}', *i);
  if (end == std::string_view::npos) return Unfinished("a property");
  std::string_view name = text.substr(*i + 1, end - *i - 1);
  *i = end + 1;
  if (name.starts_with('^')) {
    negate = !negate;
    name.remove_prefix(1);
  }
  const std::string simple = Simplify(name);
  const bool plain = !simple.empty() && std::all_of(simple.begin(), simple.end(), IsAsciiAlnum);
  if (!plain) return core::Status::Failed("unknown property \"" + std::string(name) + "\"");
  const auto wrap = [&](const CharSet& set) { return negate ? Negated(set) : set; };
  for (const std::string_view category : kShortCategories) {
    if (Simplify(category) == simple) return wrap(SetOfCategory(category));
  }
  for (const CategoryName& row : kCategories) {
    if (row.name != simple) continue;
    if (row.category != "L&") return wrap(SetOfCategory(row.category));
    return wrap({"\\p{L&}" + NewCharacters({"Lu", "Ll", "Lt"}), {}});
  }
  if (const auto posix = SetOfPosix(simple, false)) return wrap(*posix);
  if (simple == "graph" || simple == "print") {
    return core::Status::Failed("\\p{" + simple + "} is not supported");
  }
  const bool binary = std::find(std::begin(kBinaryProperties), std::end(kBinaryProperties),
                                simple) != std::end(kBinaryProperties);
  return wrap(binary ? CharSet{"\\p{" + simple + "}", {}} : SetOfScript(simple));
}

bool DependsOnCase(std::string_view set) {
  static constexpr std::string_view kCased[] = {"lu",
                                                "ll",
                                                "lt",
                                                "uppercaseletter",
                                                "lowercaseletter",
                                                "titlecaseletter",
                                                "upper",
                                                "uppercase",
                                                "lowercase",
                                                "lower"};
  if (set.find("[^", 1) != set.npos || set.find("&&") != set.npos) return true;
  for (size_t i = 0; i + 2 < set.size(); ++i) {
    const std::string_view rest = set.substr(i);
    const bool posix = rest.starts_with("[:");
    if (!posix && !rest.starts_with("\\p{") && !rest.starts_with("\\P{")) continue;
    std::string_view name = rest.substr(posix ? 2 : 3);
    name = name.substr(0, name.find(posix ? ':' : '}'));
    if (name.starts_with('^')) name.remove_prefix(1);
    const std::string simple = Simplify(name);
    if (std::find(std::begin(kCased), std::end(kCased), simple) != std::end(kCased)) return true;
  }
  return false;
}

core::Result<std::string> ReadClass(std::string_view text, size_t* i) {
  ClassReader reader(text, i);
  HOGNOSE_ASSIGN(std::string atom, reader.Read(0));
  *i = reader.position();
  return atom;
}

core::Result<std::string> ReadCodePoint(std::string_view text, size_t* i) {
  const bool braces = text.substr(*i).starts_with("x{");
  const bool raw = text[*i] == 'x' && !braces;
  const size_t most = braces ? 8 : raw ? 2 : 4;
  *i += braces ? 2 : 1;
  char32_t value = 0;
  size_t digits = 0;
  for (; digits < most && *i < text.size(); ++digits, ++*i) {
    const char c = text[*i];
    if (!IsAsciiAlnum(c) || (c | 0x20) > 'f') break;
    value = value * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  const bool closed = !braces || (*i < text.size() && text[*i] == '}');
  if (braces && closed) ++*i;
  const bool complete = raw || braces ? digits > 0 : digits == most;
  if (!complete || !closed || value > 0x10FFFF) {
    return core::Status::Failed("a character escape is wrong");
  }
  if (raw && value > 0x7F) return core::Status::Failed("\\xHH above \\x7F is not supported");
  return Hex(value);
}

}  // namespace hognose::io::tokenizer
