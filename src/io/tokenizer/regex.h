// Regex: a pattern in Oniguruma's syntax (the one tokenizer.json files are written for), matched by
// PCRE2. regex_syntax.h rewrites what the two read differently.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/function_ref.h"
#include "core/status.h"

namespace hognose::io::tokenizer {

class Regex {
 public:
  // Errors say what is wrong with the pattern.
  static core::Result<Regex> Compile(std::string_view pattern);

  // Calls match(begin, end) for every match in valid UTF-8, from left to right. An empty match
  // right behind the one before is left out. Fails if the pattern needs too many steps on this
  // text.
  core::Status ForEachMatch(std::string_view text,
                            core::FunctionRef<void(size_t begin, size_t end)> match) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const Code> code_;  // never changes: threads may share it
};

}  // namespace hognose::io::tokenizer
