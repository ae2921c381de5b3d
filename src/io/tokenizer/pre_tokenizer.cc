#include "io/tokenizer/pre_tokenizer.h"

#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/gpt2_split.h"
#include "io/tokenizer/pattern.h"

namespace hognose::io::tokenizer {
namespace {

using Sink = PreTokenizer::Sink;
using Steps = PreTokenizer::Steps;

// `piece` behind `prefix`, which counts as part of its first character.
Piece Prepend(std::string_view prefix, Piece piece, TextStore& store) {
  if (piece.origin_bytes > 0) piece.origin_bytes += prefix.size();
  piece.text = store.Keep(std::string(prefix) + std::string(piece.text));
  return piece;
}

class ByteLevelStep final : public PreTokenizer::Step {
 public:
  ByteLevelStep(bool prefix_space, bool split) : prefix_space_(prefix_space), split_(split) {}

  core::Status Apply(const Piece& piece, TextStore& store, Sink sink) const override {
    Piece whole = piece;
    if (prefix_space_ && whole.text[0] != ' ') whole = Prepend(" ", whole, store);
    whole.byte_level = true;
    if (!split_) return sink(whole);
    for (size_t begin = 0; begin < whole.text.size();) {
      const size_t end = Gpt2WordEnd(whole.text, begin);
      HOGNOSE_TRY(sink(whole.Slice(begin, end)));
      begin = end;
    }
    return {};
  }

 private:
  bool prefix_space_;
  bool split_;
};

class SplitStep final : public PreTokenizer::Step {
 public:
  SplitStep(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  core::Status Apply(const Piece& piece, TextStore&, Sink sink) const override {
    std::vector<Span> spans;
    HOGNOSE_TRY(pattern_->Find(piece.text, &spans));
    if (invert_) {
      for (Span& span : spans) span.match = !span.match;
    }
    ApplyBehavior(behavior_, &spans);
    for (const Span& span : spans) HOGNOSE_TRY(sink(piece.Slice(span.begin, span.end)));
    return {};
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

enum class PrependScheme : uint8_t { kAlways, kNever, kFirst };

class MetaspaceStep final : public PreTokenizer::Step {
 public:
  MetaspaceStep(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  core::Status Apply(const Piece& piece, TextStore& store, Sink sink) const override {
    Piece whole = piece;
    std::string text;
    for (size_t i = 0; i < piece.text.size(); ++i) {
      if (i == piece.origin_bytes) whole.origin_bytes = text.size();
      if (piece.text[i] == ' ') {
        text += replacement_;
      } else {
        text += piece.text[i];
      }
    }
    if (piece.origin_bytes == piece.text.size()) whole.origin_bytes = text.size();
    whole.text = store.Keep(std::move(text));
    const bool wanted =
        scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_origin);
    if (wanted && !whole.text.starts_with(replacement_)) {
      whole = Prepend(replacement_, whole, store);
    }
    if (!split_) return sink(whole);
    for (size_t begin = 0; begin < whole.text.size();) {
      const size_t end = std::min(whole.text.find(replacement_, begin + 1), whole.text.size());
      HOGNOSE_TRY(sink(whole.Slice(begin, end)));
      begin = end;
    }
    return {};
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

// Words, and runs of what is neither word nor white space.
class WhitespaceStep final : public PreTokenizer::Step {
 public:
  core::Status Apply(const Piece& piece, TextStore&, Sink sink) const override {
    enum class Kind : uint8_t { kSpace, kWord, kOther };
    Kind kind = Kind::kSpace;
    size_t begin = 0;
    for (size_t i = 0; i < piece.text.size(); i += CharLength(piece.text[i])) {
      const char32_t c = DecodeChar(piece.text.data() + i);
      const Kind here = IsWord(c) ? Kind::kWord : IsSpace(c) ? Kind::kSpace : Kind::kOther;
      if (here == kind) continue;
      if (kind != Kind::kSpace) HOGNOSE_TRY(sink(piece.Slice(begin, i)));
      kind = here;
      begin = i;
    }
    return kind == Kind::kSpace ? core::Status() : sink(piece.Slice(begin, piece.text.size()));
  }
};

core::Status MakeByteLevel(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const bool prefix, ReadBool(field, "add_prefix_space"));
  HOGNOSE_ASSIGN(const bool split, ReadBool(field, "use_regex", true));
  steps->push_back(std::make_unique<ByteLevelStep>(prefix, split));
  return {};
}

core::Status MakeSplit(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(auto pattern, ReadPattern(field));
  HOGNOSE_ASSIGN(const SplitBehavior behavior, ReadSplitBehavior(field));
  HOGNOSE_ASSIGN(const bool invert, ReadBool(field, "invert"));
  steps->push_back(std::make_unique<SplitStep>(std::move(pattern), behavior, invert));
  return {};
}

core::Status MakeDigits(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const bool individual, ReadBool(field, "individual_digits"));
  const auto behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  steps->push_back(std::make_unique<SplitStep>(MakeCharPattern(IsNumeric), behavior, false));
  return {};
}

core::Status MakePunctuation(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const auto behavior, ReadSplitBehavior(field, SplitBehavior::kIsolated));
  steps->push_back(std::make_unique<SplitStep>(MakeCharPattern(IsPunctuation), behavior, false));
  return {};
}

core::Status MakeMetaspace(const Field& field, Steps* steps) {
  static constexpr std::string_view kSchemes[] = {"always", "never", "first"};
  HOGNOSE_ASSIGN(std::string replacement, ReadChar(field, "replacement"));
  HOGNOSE_ASSIGN(const size_t choice, ReadChoice(field, "prepend_scheme", kSchemes, size_t{0}));
  HOGNOSE_ASSIGN(const bool split, ReadBool(field, "split", true));
  // The older field; where both stand they must agree.
  HOGNOSE_ASSIGN(const bool prefix, ReadBool(field, "add_prefix_space", true));
  auto scheme = static_cast<PrependScheme>(choice);
  if (!prefix) {
    if (field.Member("prepend_scheme").Has() && scheme != PrependScheme::kNever) {
      return Wrong(field.Member("prepend_scheme"), "\"never\", since add_prefix_space is false");
    }
    scheme = PrependScheme::kNever;
  }
  steps->push_back(std::make_unique<MetaspaceStep>(std::move(replacement), scheme, split));
  return {};
}

core::Status MakeWhitespace(const Field&, Steps* steps) {
  steps->push_back(std::make_unique<WhitespaceStep>());
  return {};
}

core::Status MakeWhitespaceSplit(const Field&, Steps* steps) {
  steps->push_back(
      std::make_unique<SplitStep>(MakeCharPattern(IsSpace), SplitBehavior::kRemoved, false));
  return {};
}

core::Status MakeDelimiter(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(std::string delimiter, ReadChar(field, "delimiter"));
  steps->push_back(std::make_unique<SplitStep>(MakeLiteral(std::move(delimiter)),
                                               SplitBehavior::kRemoved, false));
  return {};
}

core::Status MakeBert(const Field& field, Steps* steps) {
  HOGNOSE_TRY(MakeWhitespaceSplit(field, steps));
  steps->push_back(
      std::make_unique<SplitStep>(MakeCharPattern(IsPunctuation), SplitBehavior::kIsolated, false));
  return {};
}

core::Status AddSteps(const Field& field, Steps* steps);

core::Status MakeSequence(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const auto elements, ReadArray(field, "pretokenizers"));
  for (const Field& element : elements) HOGNOSE_TRY(AddSteps(element, steps));
  return {};
}

using Make = core::Status (*)(const Field&, Steps*);
constexpr Kind<Make> kKinds[] = {
    {"ByteLevel", MakeByteLevel},
    {"Split", MakeSplit},
    {"Digits", MakeDigits},
    {"Punctuation", MakePunctuation},
    {"Metaspace", MakeMetaspace},
    {"Whitespace", MakeWhitespace},
    {"WhitespaceSplit", MakeWhitespaceSplit},
    {"CharDelimiterSplit", MakeDelimiter},
    {"BertPreTokenizer", MakeBert},
    {"Sequence", MakeSequence},
};

core::Status AddSteps(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const Make make, ReadKind(field, kKinds));
  return make(field, steps);
}

}  // namespace

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

core::Result<PreTokenizer> PreTokenizer::Parse(const Field& field) {
  PreTokenizer pre_tokenizer;
  if (field.Has()) HOGNOSE_TRY(AddSteps(field, &pre_tokenizer.steps_));
  return pre_tokenizer;
}

core::Status PreTokenizer::Run(size_t step, const Piece& piece, TextStore& store, Sink sink) const {
  if (piece.text.empty()) return {};
  if (step == steps_.size()) return sink(piece);
  const auto next = [&](const Piece& part) { return Run(step + 1, part, store, sink); };
  if (!piece.byte_level) return steps_[step]->Apply(piece, store, next);
  // A step behind ByteLevel sees what ByteLevel writes.
  Piece written = piece;
  std::string text, origin;
  AppendByteLevel(piece.text, &text);
  AppendByteLevel(piece.text.substr(0, piece.origin_bytes), &origin);
  written.text = store.Keep(std::move(text));
  written.origin_bytes = origin.size();
  written.byte_level = false;
  return steps_[step]->Apply(written, store, next);
}

}  // namespace hognose::io::tokenizer
