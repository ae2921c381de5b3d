// Rewrites a pattern from Oniguruma's syntax to PCRE2's, so that it matches the same text.
//
// What differs, and is rewritten: \s \w \d \b \h \v and [:classes:] (Unicode's definitions);
// \p{Han} (a script without its extensions); (?m) (dot matches newline) and where an option ends;
// nested and intersected character classes; {,n}, {n}?, {n,m}+ and repeated quantifiers; escapes of
// letters that mean nothing. Characters that PCRE2's tables do not have yet are added to the
// classes. Refused: raw bytes above \x7F, absence operators, callouts, \y, [:graph:], [:print:].
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace hognose::io::tokenizer {

core::Result<std::string> TranslateRegex(std::string_view pattern);

}  // namespace hognose::io::tokenizer
