#include "io/tokenizer/pattern.h"

#include <algorithm>

#include "io/tokenizer/regex.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

// Adds a match and what stands before it; `done` is where the last span ended.
void AddMatch(size_t begin, size_t end, size_t* done, std::vector<Span>* spans) {
  if (*done != begin) spans->push_back({*done, begin, false});
  spans->push_back({begin, end, true});
  *done = end;
}

void AddRest(std::string_view text, size_t done, std::vector<Span>* spans) {
  if (done != text.size()) spans->push_back({done, text.size(), false});
}

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}

  core::Status Find(std::string_view text, std::vector<Span>* spans) const override {
    size_t done = 0;
    if (literal_.empty()) {  // matches between all characters
      for (size_t i = 0; i < text.size(); i += CharLength(text[i])) AddMatch(i, i, &done, spans);
      AddMatch(text.size(), text.size(), &done, spans);
      return {};
    }
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, done)) {
      AddMatch(at, at + literal_.size(), &done, spans);
    }
    AddRest(text, done, spans);
    return {};
  }

 private:
  std::string literal_;
};

class RegexPattern final : public Pattern {
 public:
  explicit RegexPattern(Regex regex) : regex_(std::move(regex)) {}

  core::Status Find(std::string_view text, std::vector<Span>* spans) const override {
    size_t done = 0;
    HOGNOSE_TRY(regex_.ForEachMatch(
        text, [&](size_t begin, size_t end) { AddMatch(begin, end, &done, spans); }));
    AddRest(text, done, spans);
    return {};
  }

 private:
  Regex regex_;
};

class CharPattern final : public Pattern {
 public:
  explicit CharPattern(bool (*is)(char32_t)) : is_(is) {}

  core::Status Find(std::string_view text, std::vector<Span>* spans) const override {
    size_t done = 0;
    for (size_t i = 0; i < text.size();) {
      const size_t length = CharLength(text[i]);
      if (is_(DecodeChar(text.data() + i))) AddMatch(i, i + length, &done, spans);
      i += length;
    }
    AddRest(text, done, spans);
    return {};
  }

 private:
  bool (*is_)(char32_t);
};

// Joins a match to the kept part before it, unless that part is a match already.
void MergeIntoPrevious(std::vector<Span>* spans) {
  bool after_match = false;
  size_t kept = 0;
  for (const Span& span : *spans) {
    if (span.match && !after_match && kept > 0) {
      (*spans)[kept - 1].end = span.end;
    } else {
      (*spans)[kept++] = {span.begin, span.end, span.match};
    }
    after_match = span.match;
  }
  spans->resize(kept);
}

void MergeIntoNext(std::vector<Span>* spans) {
  bool before_match = false;
  size_t kept = spans->size();
  for (size_t i = spans->size(); i-- > 0;) {
    const Span span = (*spans)[i];
    if (span.match && !before_match && kept < spans->size()) {
      (*spans)[kept].begin = span.begin;
    } else {
      (*spans)[--kept] = span;
    }
    before_match = span.match;
  }
  spans->erase(spans->begin(), spans->begin() + static_cast<std::ptrdiff_t>(kept));
}

void MergeEqual(std::vector<Span>* spans) {
  bool previous = false;
  size_t kept = 0;
  for (const Span& span : *spans) {
    if (span.match == previous && kept > 0) {
      (*spans)[kept - 1].end = span.end;
    } else {
      (*spans)[kept++] = span;
    }
    previous = span.match;
  }
  spans->resize(kept);
}

}  // namespace

core::Result<std::unique_ptr<Pattern>> ReadPattern(const Field& parent) {
  const Field field = parent.Member("pattern");
  const auto* object = field.Has() ? field.value->AsObject() : nullptr;
  if (object == nullptr || object->size() != 1) {
    return Wrong(field, "{\"String\": ...} or {\"Regex\": ...}");
  }
  const std::string& kind = object->front().first;
  if (kind != "String" && kind != "Regex") {
    return Wrong(field, "{\"String\": ...} or {\"Regex\": ...}");
  }
  HOGNOSE_ASSIGN(std::string text, ReadString(field, kind));
  if (kind == "String") return MakeLiteral(std::move(text));
  auto regex = Regex::Compile(text);
  if (!regex.ok()) {
    return Wrong(field.Member(kind), "a regular expression: " + regex.status().message());
  }
  return std::unique_ptr<Pattern>(std::make_unique<RegexPattern>(std::move(*regex)));
}

std::unique_ptr<Pattern> MakeLiteral(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

std::unique_ptr<Pattern> MakeCharPattern(bool (*is)(char32_t)) {
  return std::make_unique<CharPattern>(is);
}

core::Status ReplaceMatches(const Pattern& pattern, std::string_view text, std::string_view content,
                            std::string* out) {
  std::vector<Span> spans;
  HOGNOSE_TRY(pattern.Find(text, &spans));
  for (const Span& span : spans) {
    out->append(span.match ? content : text.substr(span.begin, span.end - span.begin));
  }
  return {};
}

core::Result<SplitBehavior> ReadSplitBehavior(const Field& parent,
                                              std::optional<SplitBehavior> fallback) {
  static constexpr std::string_view kNames[] = {"Removed", "Isolated", "MergedWithPrevious",
                                                "MergedWithNext", "Contiguous"};
  std::optional<size_t> index;
  if (fallback) index = static_cast<size_t>(*fallback);
  HOGNOSE_ASSIGN(const size_t choice, ReadChoice(parent, "behavior", kNames, index));
  return static_cast<SplitBehavior>(choice);
}

void ApplyBehavior(SplitBehavior behavior, std::vector<Span>* spans) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(*spans, [](const Span& span) { return span.match; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      MergeIntoPrevious(spans);
      break;
    case SplitBehavior::kMergedWithNext:
      MergeIntoNext(spans);
      break;
    case SplitBehavior::kContiguous:
      MergeEqual(spans);
      break;
  }
}

}  // namespace hognose::io::tokenizer
