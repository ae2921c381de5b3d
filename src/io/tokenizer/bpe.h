// The BPE model: a word to ids, by merging the neighbours whose merge stands first in the list.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/vocabulary.h"

namespace hognose::io::tokenizer {

// The merge of two neighbouring ids, found by hashing.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };

  void Reserve(size_t merges);
  // A later merge of the same pair replaces the earlier one, as in the tokenizers library.
  void Set(int32_t left, int32_t right, Merge merge);
  Merge Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Home(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t Home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }

  std::vector<Slot> slots_ = std::vector<Slot>(2);  // a power of two, at most half full
  size_t mask_ = 1;
  int shift_ = 63;
};

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

  static core::Result<Bpe> Parse(const Field& model);

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
  bool AddMerge(std::string_view left, std::string_view right, uint32_t rank);
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
  std::string merged_;  // while merges are read
};

}  // namespace hognose::io::tokenizer
