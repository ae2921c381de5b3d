// Tokenizer: a Hugging Face tokenizer.json of the BPE kind. Encode gives exactly the ids of the
// `tokenizers` library; decode streams bytes without ever giving half a character.
//
// Where the library has no answer, or not one that a user wants:
//  - "truncation" and "padding" of the file are ignored, as transformers does: text is never cut.
//  - Ids that name no token are an error (the library leaves them out).
//  - Files with two tokens of one id, or with a template that adds an id without a token, are
//  refused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace hognose::io {
namespace tokenizer {
struct ModelTables;
}

class Tokenizer {
 public:
  // Everything is checked here; errors name the file and the field.
  static core::Result<Tokenizer> Load(const std::string& path);
  static core::Result<Tokenizer> Parse(std::string_view json, std::string_view where);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Fails on invalid UTF-8 (with the byte offset), if the unk token is needed and not in the
  // vocabulary, and if a regular expression needs too many steps. A character that has no token is
  // left out if there is no unk token, as in the library. Threads may share a Tokenizer.
  // `special`: add the post-processor's tokens.
  core::Result<std::vector<int32_t>> Encode(std::string_view text, bool special = true) const;
  // The whole text of `ids`. Ids that are in no vocabulary are an error. Invalid UTF-8 becomes
  // U+FFFD.
  core::Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special) const;

  // Number of entries: one above the largest id (added tokens included).
  size_t vocab_size() const;
  // False for ids that name no token (holes and everything from vocab_size() on).
  bool Has(int32_t id) const;
  std::optional<int32_t> Find(std::string_view token) const;

  // Decodes one id after another. The concatenation of all pieces and Finish() equals
  // Decode(ids, skip_special); no piece ends inside a UTF-8 character. The tokenizer must live as
  // long (it may be moved).
  class Stream {
   public:
    Stream(const Tokenizer& tokenizer, bool skip_special);
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    ~Stream();
    core::Result<std::string> Push(int32_t id);
    // What is still held back: an unfinished character as U+FFFD. Ends the stream.
    core::Result<std::string> Finish();
    // What a continuation in another process needs: opaque bytes, restored exactly.
    std::string Save() const;
    core::Status Restore(std::string_view saved);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  static core::Result<Tokenizer> ParseTree(std::string_view json, std::string_view where,
                                           tokenizer::ModelTables* tables);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hognose::io
