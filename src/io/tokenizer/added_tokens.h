// Added tokens: found in the text before the model sees it.
//
// A token that is not `normalized` is searched in the raw text, the others in the normalized text,
// there in their normalized form. At each place the longest one wins.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/normalizer.h"
#include "io/tokenizer/pieces.h"
#include "io/tokenizer/vocabulary.h"

namespace hognose::io::tokenizer {

struct AddedToken {
  std::string content;
  std::string decoded;  // what the decoder gets: the normalized form if there is one
  int32_t id = -1;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = true;
  bool special = false;
};

// Several strings, searched at once.
class StringSet {
 public:
  // No string is empty. Of equal ones, the one with the lowest value counts (in the tokenizers
  // library it is left to chance).
  void Build(std::vector<std::pair<std::string, size_t>> strings);
  bool empty() const { return strings_.empty(); }

  struct Match {
    size_t begin;
    size_t end;
    size_t value;
  };
  // The first match at or after `from`, the longest one there.
  std::optional<Match> Find(std::string_view text, size_t from) const;

 private:
  std::vector<std::pair<std::string, size_t>> strings_;  // sorted
  std::array<bool, 256> first_bytes_ = {};
  int only_first_byte_ = -1;
};

class AddedTokens {
 public:
  // Like the tokenizers library, a token that the model has keeps the model's id, and the others
  // are numbered from the size of the model's vocabulary: the ids in the file are not used.
  static core::Result<AddedTokens> Parse(const Field& array, const Vocabulary& model,
                                         const Normalizer& normalizer);

  // Cuts the piece at the tokens that are searched in raw or in normalized text.
  void Extract(const Piece& piece, bool normalized, Pieces* out) const;

  const AddedToken* FindId(int32_t id) const {
    const auto i = static_cast<size_t>(id);  // a negative one is above all
    return i < by_id_.size() && by_id_[i] >= 0 ? &tokens_[static_cast<size_t>(by_id_[i])] : nullptr;
  }
  std::optional<int32_t> Find(std::string_view content) const;
  // Whether decoding leaves out a token that reads `text`, if special tokens are skipped.
  bool IsSpecial(std::string_view text) const;
  size_t id_end() const { return by_id_.size(); }

 private:
  core::Status Add(const Field& field, AddedToken token, const Vocabulary& model,
                   const Normalizer& normalizer, int32_t* next_id);
  core::Status BuildSets(const Field& array);

  std::vector<AddedToken> tokens_;
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::vector<int32_t> by_id_;  // index in tokens_, or -1
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> by_content_;
  std::unordered_set<std::string, Hash, std::equal_to<>> special_;
  StringSet raw_;
  StringSet normalized_;
};

}  // namespace hognose::io::tokenizer
