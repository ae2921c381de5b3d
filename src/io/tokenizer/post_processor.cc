#include "io/tokenizer/post_processor.h"

#include <utility>

#include "io/tokenizer/vocabulary.h"

namespace hognose::io::tokenizer {

core::Result<PostProcessor> PostProcessor::Parse(const Field& field) {
  PostProcessor processor;
  if (field.Has()) HOGNOSE_TRY(processor.Read(field));
  return processor;
}

std::vector<int32_t> PostProcessor::Apply(std::vector<int32_t> ids, bool special) const {
  if (template_.size() == 1 && template_[0] == kText) return ids;
  std::vector<int32_t> all;
  for (const int32_t id : template_) {
    if (id == kText) {
      all.insert(all.end(), ids.begin(), ids.end());
    } else if (special) {
      all.push_back(id);
    }
  }
  return all;
}

std::vector<int32_t> PostProcessor::added_ids() const {
  std::vector<int32_t> ids = template_;
  std::erase(ids, kText);
  return ids;
}

core::Status PostProcessor::Read(const Field& field) {
  using Member = core::Status (PostProcessor::*)(const Field&);
  static constexpr Kind<Member> kKinds[] = {
      {"TemplateProcessing", &PostProcessor::ReadTemplate},
      {"RobertaProcessing", &PostProcessor::ReadPair},
      {"BertProcessing", &PostProcessor::ReadPair},
      {"ByteLevel", nullptr},  // changes offsets only
      {"Sequence", nullptr},
  };
  HOGNOSE_ASSIGN(const Member member, ReadKind(field, kKinds));
  if (member != nullptr) {
    if (std::exchange(adds_tokens_, true)) {
      return Wrong(field.Member("type"), "only one processor that adds tokens");
    }
    template_.clear();
    return (this->*member)(field);
  }
  if (*field.Member("type").value->AsString() != "Sequence") return {};
  HOGNOSE_ASSIGN(const auto processors, ReadArray(field, "processors"));
  for (const Field& processor : processors) HOGNOSE_TRY(Read(processor));
  return {};
}

core::Status PostProcessor::ReadTemplate(const Field& field) {
  HOGNOSE_ASSIGN(const auto pieces, ReadArray(field, "single"));
  for (const Field& piece : pieces) {
    const auto* object = piece.value->AsObject();
    const bool single = object != nullptr && object->size() == 1;
    if (single && object->front().first == "SpecialToken") {
      HOGNOSE_ASSIGN(const std::string name, ReadString(piece.Member("SpecialToken"), "id"));
      HOGNOSE_TRY(ReadSpecialToken(field, name));
    } else if (single && object->front().first == "Sequence") {
      static constexpr std::string_view kFirst[] = {"A"};
      HOGNOSE_TRY(ReadChoice(piece.Member("Sequence"), "id", kFirst).status());
      template_.push_back(kText);
    } else {
      return Wrong(piece, "{\"Sequence\": ...} or {\"SpecialToken\": ...}");
    }
  }
  return {};
}

core::Status PostProcessor::ReadSpecialToken(const Field& field, const std::string& name) {
  const Field token = field.Member("special_tokens").Member(name);
  if (!token.Has()) return Wrong(token, "an object with \"ids\"");
  HOGNOSE_ASSIGN(const auto ids, ReadArray(token, "ids"));
  for (const Field& id : ids) {
    const auto* value = id.value->AsInt();
    if (value == nullptr || *value < 0 || *value >= Vocabulary::kIdLimit) {
      return Wrong(id, "an id from 0 to " + std::to_string(Vocabulary::kIdLimit - 1));
    }
    template_.push_back(static_cast<int32_t>(*value));
  }
  return {};
}

// "cls" before the text, "sep" behind it, both [token, id].
core::Status PostProcessor::ReadPair(const Field& field) {
  for (const char* key : {"cls", "sep"}) {
    HOGNOSE_ASSIGN(const auto pair, ReadArray(field, key));
    const auto* id = pair.size() == 2 ? pair[1].value->AsInt() : nullptr;
    if (id == nullptr || *id < 0 || *id >= Vocabulary::kIdLimit) {
      return Wrong(field.Member(key), "[token, id]");
    }
    if (template_.size() == 1) template_.push_back(kText);
    template_.push_back(static_cast<int32_t>(*id));
  }
  return {};
}

}  // namespace hognose::io::tokenizer
