// Character classes and properties of a pattern in Oniguruma's syntax, written for PCRE2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace hognose::io::tokenizer {

// A set of characters: what can stand between the brackets of one PCRE2 class, and atoms (each
// matches one character) for what can't.
struct CharSet {
  std::string items;
  std::vector<std::string> atoms;

  void Add(const CharSet& other);
  // An atom that matches a character of the set, or one that is not in it.
  std::string Atom(bool negate) const;
};

// \w \s \d \h and their negations; nullopt if `letter` is none of them.
std::optional<CharSet> SetOfEscape(char letter);

// The property that stands at text[*i] == '{', behind \p or (`negate`) \P. Moves *i behind it.
core::Result<CharSet> ReadProperty(std::string_view text, size_t* i, bool negate);

// The class that begins at text[*i] == '['. Moves *i behind it. Gives an atom.
core::Result<std::string> ReadClass(std::string_view text, size_t* i);

// Whether a class or property, as written, tells upper from lower case other than by its letters.
// Under (?i) Oniguruma and PCRE2 then disagree.
bool DependsOnCase(std::string_view set);

// A code point escape \xHH \x{H} \uHHHH with text[*i] at the letter: "\x{...}". Moves *i behind it.
core::Result<std::string> ReadCodePoint(std::string_view text, size_t* i);

}  // namespace hognose::io::tokenizer
