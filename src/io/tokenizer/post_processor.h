// PostProcessor: the tokens that are put around the encoded text.
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"

namespace hognose::io::tokenizer {

class PostProcessor {
 public:
  // Types: TemplateProcessing (its "single" template) RobertaProcessing BertProcessing ByteLevel
  // Sequence, or null. At most one of a Sequence may add tokens.
  static core::Result<PostProcessor> Parse(const Field& field);

  std::vector<int32_t> Apply(std::vector<int32_t> ids, bool special) const;

  // The tokens that Apply may add.
  std::vector<int32_t> added_ids() const;

 private:
  static constexpr int32_t kText = -1;

  core::Status Read(const Field& field);
  core::Status ReadTemplate(const Field& field);
  core::Status ReadPair(const Field& field);
  core::Status ReadSpecialToken(const Field& field, const std::string& name);

  bool adds_tokens_ = false;
  std::vector<int32_t> template_ = {kText};  // ids, and kText where the text's ids go
};

}  // namespace hognose::io::tokenizer
