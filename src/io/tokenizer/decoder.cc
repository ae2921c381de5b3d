#include "io/tokenizer/decoder.h"

#include "io/tokenizer/decode_stages.h"

namespace hognose::io::tokenizer {
namespace {

using Stages = Decoder::Stages;

constexpr std::string_view kBadState =
    "decoder state: got bytes that this tokenizer did not write, want those of Save";

template <typename Stage>
core::Status MakeStage(const Field&, Stages* stages) {
  stages->push_back(std::make_unique<Stage>());
  return {};
}

core::Status MakeStrip(const Field& field, Stages* stages) {
  constexpr int64_t kMost = 1 << 20;
  HOGNOSE_ASSIGN(std::string content, ReadChar(field, "content"));
  HOGNOSE_ASSIGN(const int64_t start, ReadInt(field, "start", 0, kMost));
  HOGNOSE_ASSIGN(const int64_t stop, ReadInt(field, "stop", 0, kMost));
  stages->push_back(std::make_unique<StripStage>(std::move(content), static_cast<size_t>(start),
                                                 static_cast<size_t>(stop)));
  return {};
}

core::Status MakeReplace(const Field& field, Stages* stages) {
  HOGNOSE_ASSIGN(std::shared_ptr<const Pattern> pattern, ReadPattern(field));
  HOGNOSE_ASSIGN(std::string content, ReadString(field, "content"));
  stages->push_back(std::make_unique<ReplaceStage>(std::move(pattern), std::move(content)));
  return {};
}

core::Status MakeMetaspace(const Field& field, Stages* stages) {
  static constexpr std::string_view kSchemes[] = {"always", "never", "first"};
  HOGNOSE_ASSIGN(std::string replacement, ReadChar(field, "replacement"));
  HOGNOSE_ASSIGN(const size_t scheme, ReadChoice(field, "prepend_scheme", kSchemes, size_t{0}));
  HOGNOSE_ASSIGN(const bool prefix, ReadBool(field, "add_prefix_space", true));
  const bool drop_first = prefix && kSchemes[scheme] != "never";
  stages->push_back(std::make_unique<MetaspaceStage>(std::move(replacement), drop_first));
  return {};
}

core::Status MakeWordEnd(const Field& field, Stages* stages) {
  HOGNOSE_ASSIGN(std::string suffix, ReadString(field, "suffix"));
  stages->push_back(std::make_unique<WordEndStage>(std::move(suffix)));
  return {};
}

core::Status AddStages(const Field& field, Stages* stages);

core::Status MakeSequence(const Field& field, Stages* stages) {
  HOGNOSE_ASSIGN(const auto elements, ReadArray(field, "decoders"));
  for (const Field& element : elements) HOGNOSE_TRY(AddStages(element, stages));
  return {};
}

using Make = core::Status (*)(const Field&, Stages*);
constexpr Kind<Make> kKinds[] = {
    {"ByteLevel", MakeStage<ByteLevelStage>},
    {"ByteFallback", MakeStage<ByteFallbackStage>},
    {"Fuse", MakeStage<FuseStage>},
    {"Strip", MakeStrip},
    {"Replace", MakeReplace},
    {"Metaspace", MakeMetaspace},
    {"BPEDecoder", MakeWordEnd},
    {"Sequence", MakeSequence},
};

core::Status AddStages(const Field& field, Stages* stages) {
  HOGNOSE_ASSIGN(const Make make, ReadKind(field, kKinds));
  return make(field, stages);
}

}  // namespace

core::Result<Decoder> Decoder::Parse(const Field& field) {
  Decoder decoder;
  if (field.Has()) {
    HOGNOSE_TRY(AddStages(field, &decoder.stages_));
  } else {
    decoder.stages_.push_back(std::make_unique<JoinStage>());
  }
  return decoder;
}

Stages Decoder::MakeStages() const {
  Stages stages;
  for (const auto& stage : stages_) {
    stages.push_back(stage->Clone());
    if (stages.size() > 1) stages[stages.size() - 2]->set_next(stages.back().get());
  }
  return stages;
}

DecodeChain::DecodeChain(const Decoder& decoder) : stages_(decoder.MakeStages()) {
  if (!stages_.empty()) stages_.back()->set_next(&end_);
}

core::Status DecodeChain::Push(std::string_view token) {
  HOGNOSE_TRY(first().Text(token));
  return first().EndToken();
}

core::Status DecodeChain::Finish() { return first().Finish(); }

std::string DecodeChain::Save() const {
  std::string record;
  for (const auto& stage : stages_) PutString(stage->Save(), &record);
  return record;
}

core::Status DecodeChain::Load(std::string_view saved) {
  // Into copies first: a refused state must leave this one as it was.
  Decoder::Stages loaded;
  for (const auto& stage : stages_) {
    std::string_view part;
    loaded.push_back(stage->Clone());
    if (!GetString(&saved, &part) || !loaded.back()->Load(part)) {
      return core::Status::Failed(std::string(kBadState));
    }
    if (loaded.size() > 1) loaded[loaded.size() - 2]->set_next(loaded.back().get());
  }
  if (!saved.empty()) return core::Status::Failed(std::string(kBadState));
  stages_ = std::move(loaded);
  if (!stages_.empty()) stages_.back()->set_next(&end_);
  return {};
}

}  // namespace hognose::io::tokenizer
