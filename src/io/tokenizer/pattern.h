// Pattern: what Split, Replace and other stages search for, and what they do at the places found.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"

namespace hognose::io::tokenizer {

// A part of a text, bytes [begin, end): a match, or what stands between matches.
struct Span {
  size_t begin;
  size_t end;
  bool match;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Spans that cover all of `text` in order. Never two of them without a match in a row.
  virtual core::Status Find(std::string_view text, std::vector<Span>* spans) const = 0;
};

// The member "pattern": {"String": s} or {"Regex": s}.
core::Result<std::unique_ptr<Pattern>> ReadPattern(const Field& parent);
std::unique_ptr<Pattern> MakeLiteral(std::string literal);
// Each character for which `is` holds is a match.
std::unique_ptr<Pattern> MakeCharPattern(bool (*is)(char32_t));

// `text` with `content` in the place of each match.
core::Status ReplaceMatches(const Pattern& pattern, std::string_view text, std::string_view content,
                            std::string* out);

enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};
core::Result<SplitBehavior> ReadSplitBehavior(const Field& parent,
                                              std::optional<SplitBehavior> fallback = std::nullopt);

// Turns spans into the parts to keep; some of them may be empty.
void ApplyBehavior(SplitBehavior behavior, std::vector<Span>* spans);

}  // namespace hognose::io::tokenizer
