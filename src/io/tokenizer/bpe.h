// The BPE model: a word to ids, by merging the neighbours whose merge stands first in the list.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/merge_table.h"
#include "io/tokenizer/model_text.h"
#include "io/tokenizer/vocabulary.h"

namespace hognose::io::tokenizer {

class Bpe {
 public:
  // Buffers of one Encode call, kept from word to word.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t position;
      int32_t id;
    };
    std::vector<int32_t> ids;
    std::vector<MergeTable::Merge> merges;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string text;
  };

  // `tables`: what was cut out of the text before `model` was made from it, if anything was.
  static core::Result<Bpe> Parse(const Field& model, ModelTables* tables);

  // Appends the ids of `word`. `byte_level`: the model sees the word written in the ByteLevel
  // alphabet. Characters without a token are left out if there is no unk_token (so does the
  // tokenizers library). Fails if unk_token is needed and not in the vocabulary.
  core::Status Encode(std::string_view word, bool byte_level, Scratch& scratch,
                      std::vector<int32_t>* ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  core::Status ReadOptions(const Field& model);
  core::Status ReadVocabulary(const Field& model);
  core::Status ReadMerges(const Field& model);
  void FindByteIds();

  core::Status Split(std::string_view word, Scratch& scratch) const;
  bool AppendBytes(std::string_view text, std::vector<int32_t>* ids) const;
  void MergeShort(Scratch& scratch) const;
  void MergeLong(Scratch& scratch) const;
  void PushCandidate(Scratch& scratch, int32_t left) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::string unk_token_;
  std::string unk_path_;  // for messages
  bool has_unk_ = false;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::string prefix_;                            // continuing_subword_prefix
  std::string suffix_;                            // end_of_word_suffix
  std::array<int32_t, 256> byte_level_ids_ = {};  // of one-character tokens; -1: none
  std::array<int32_t, 256> fallback_ids_ = {};    // of "<0x00>" and so on; -1: none
  bool all_byte_level_ids_ = false;
};

}  // namespace hognose::io::tokenizer
