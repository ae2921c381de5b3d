#include "io/tokenizer/normalizer.h"

#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/pattern.h"
#include "io/tokenizer/unicode_normal_form.h"

namespace hognose::io::tokenizer {
namespace {

using Steps = Normalizer::Steps;

// What stands in the place of the piece's first input character is now `origin_bytes` long.
void SetText(Piece* piece, std::string text, size_t origin_bytes, TextStore& store) {
  piece->text = store.Keep(std::move(text));
  piece->origin_bytes = std::min(origin_bytes, piece->text.size());
  piece->at_origin = piece->at_origin && piece->origin_bytes > 0;
}

class NormalFormStep final : public Normalizer::Step {
 public:
  explicit NormalFormStep(NormalForm form) : form_(form) {}

  core::Status Apply(Piece* piece, TextStore& store) const override {
    std::string out;
    HOGNOSE_ASSIGN(const bool changed, ToNormalForm(form_, piece->text, &out));
    if (!changed) return {};
    const size_t first = piece->origin_bytes > 0 && !out.empty() ? CharLength(out[0]) : 0;
    SetText(piece, std::move(out), first, store);
    return {};
  }

 private:
  NormalForm form_;
};

// Writes each character anew, or leaves it out.
class MapStep final : public Normalizer::Step {
 public:
  using Map = void (*)(char32_t c, std::string_view bytes, std::string* out);
  explicit MapStep(Map map) : map_(map) {}

  core::Status Apply(Piece* piece, TextStore& store) const override {
    std::string out;
    out.reserve(piece->text.size());
    size_t read = 0, origin = 0;
    ForEachChar(piece->text, [&](char32_t c, std::string_view bytes) {
      map_(c, bytes, &out);
      read += bytes.size();
      if (read <= piece->origin_bytes) origin = out.size();
    });
    SetText(piece, std::move(out), origin, store);
    return {};
  }

 private:
  Map map_;
};

class StripStep final : public Normalizer::Step {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}

  core::Status Apply(Piece* piece, TextStore&) const override {
    const std::string_view text = piece->text;
    size_t begin = left_ ? SpaceAtStart(text) : 0;
    const size_t end = right_ ? SpaceAtEnd(text) : text.size();
    if (begin > end) begin = end;
    // Not Slice: the piece still begins where it began in the input.
    piece->text = text.substr(begin, end - begin);
    piece->origin_bytes -= std::min(piece->origin_bytes, begin);
    return {};
  }

 private:
  bool left_;
  bool right_;
};

class PrependStep final : public Normalizer::Step {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}

  core::Status Apply(Piece* piece, TextStore& store) const override {
    if (piece->text.empty()) return {};
    const size_t origin = piece->origin_bytes > 0 ? piece->origin_bytes + prefix_.size() : 0;
    SetText(piece, prefix_ + std::string(piece->text), origin, store);
    return {};
  }

 private:
  std::string prefix_;
};

class ReplaceStep final : public Normalizer::Step {
 public:
  ReplaceStep(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  core::Status Apply(Piece* piece, TextStore& store) const override {
    std::vector<Span> spans;
    HOGNOSE_TRY(pattern_->Find(piece->text, &spans));
    std::string out;
    size_t origin = 0;
    for (const Span& span : spans) {
      const auto old = piece->text.substr(span.begin, span.end - span.begin);
      out += span.match ? std::string_view(content_) : old;
      if (span.match && span.end <= piece->origin_bytes) origin = out.size();
      if (!span.match && span.begin < piece->origin_bytes) {
        origin = out.size() - old.size() + std::min(piece->origin_bytes - span.begin, old.size());
      }
    }
    SetText(piece, std::move(out), origin, store);
    return {};
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

void KeepUnlessMark(char32_t c, std::string_view bytes, std::string* out) {
  if (!IsMark(c)) out->append(bytes);
}
void Lower(char32_t c, std::string_view, std::string* out) { AppendLower(c, out); }
void ToByteLevel(char32_t, std::string_view bytes, std::string* out) {
  AppendByteLevel(bytes, out);
}

template <bool compose, bool compatibility>
core::Status MakeNormalForm(const Field&, Steps* steps) {
  steps->push_back(std::make_unique<NormalFormStep>(NormalForm{compose, compatibility}));
  return {};
}

template <MapStep::Map map>
core::Status MakeMap(const Field&, Steps* steps) {
  steps->push_back(std::make_unique<MapStep>(map));
  return {};
}

core::Status MakeStrip(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const bool left, ReadBool(field, "strip_left"));
  HOGNOSE_ASSIGN(const bool right, ReadBool(field, "strip_right"));
  steps->push_back(std::make_unique<StripStep>(left, right));
  return {};
}

core::Status MakePrepend(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(std::string prefix, ReadString(field, "prepend"));
  steps->push_back(std::make_unique<PrependStep>(std::move(prefix)));
  return {};
}

core::Status MakeReplace(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(auto pattern, ReadPattern(field));
  HOGNOSE_ASSIGN(std::string content, ReadString(field, "content"));
  steps->push_back(std::make_unique<ReplaceStep>(std::move(pattern), std::move(content)));
  return {};
}

core::Status AddSteps(const Field& field, Steps* steps);

core::Status MakeSequence(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const auto elements, ReadArray(field, "normalizers"));
  for (const Field& element : elements) HOGNOSE_TRY(AddSteps(element, steps));
  return {};
}

using Make = core::Status (*)(const Field&, Steps*);
constexpr Kind<Make> kKinds[] = {
    {"NFC", MakeNormalForm<true, false>},
    {"NFD", MakeNormalForm<false, false>},
    {"NFKC", MakeNormalForm<true, true>},
    {"NFKD", MakeNormalForm<false, true>},
    {"Lowercase", MakeMap<Lower>},
    {"Strip", MakeStrip},
    {"StripAccents", MakeMap<KeepUnlessMark>},
    {"Prepend", MakePrepend},
    {"Replace", MakeReplace},
    {"ByteLevel", MakeMap<ToByteLevel>},
    {"Sequence", MakeSequence},
};

core::Status AddSteps(const Field& field, Steps* steps) {
  HOGNOSE_ASSIGN(const Make make, ReadKind(field, kKinds));
  return make(field, steps);
}

}  // namespace

Normalizer::Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

core::Result<Normalizer> Normalizer::Parse(const Field& field) {
  Normalizer normalizer;
  if (field.Has()) HOGNOSE_TRY(AddSteps(field, &normalizer.steps_));
  return normalizer;
}

core::Status Normalizer::Apply(Piece* piece, TextStore& store) const {
  for (const auto& step : steps_) HOGNOSE_TRY(step->Apply(piece, store));
  return {};
}

}  // namespace hognose::io::tokenizer
