// Tokens that a language model trains on: ids as they are, or text through the model's tokenizer.
//
//   ids    decimal ids between whitespace and commas
//   npy    int64 or int32 [tokens]; mapped, not copied
//   text   UTF-8, the whole file one document
//   jsonl  every line an object with a string "text", which is one document; blank lines are
//          skipped. Each document is followed by the end-of-text id where there is one.
//
// kAuto: NPY by its name or first bytes; a file of nothing but digits, whitespace and commas is
// ids; .jsonl and .ndjson are JSONL; everything else is text. A model without a tokenizer trains on
// ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "io/npy.h"
#include "io/tokenizer/tokenizer.h"
#include "train/data_format.h"

namespace hognose::train {

struct TokenOptions {
  DataFormat format = DataFormat::kAuto;
  const io::Tokenizer* tokenizer = nullptr;
  size_t vocab = 0;  // ids lie in [0, vocab)
  std::optional<int32_t> end_of_text = std::nullopt;
};

class TokenData {
 public:
  // Every id is checked here. Errors: "<path>: token 17: got 300, want an id from 0 to 255".
  static core::Result<TokenData> Load(const std::string& path, const TokenOptions& options);

  size_t size() const;
  // out[i] = token begin + i
  void Copy(size_t begin, std::span<int32_t> out) const;
  // Where each document ends (one past its last token, the end-of-text id included), ascending.
  // Only JSONL has documents; a document without tokens isn't listed.
  std::span<const size_t> document_ends() const { return document_ends_; }
  const std::string& path() const { return path_; }  // for messages
  // Of the tokens and the ends of documents, however they were stored.
  std::string Digest() const;

 private:
  core::Status Read(const TokenOptions& options);
  core::Status ReadNpy();
  core::Status ReadJsonl(std::string_view text, const TokenOptions& options);
  core::Status Check(size_t vocab) const;

  std::string path_;
  std::vector<int32_t> ids_;
  std::optional<io::NpyArray> array_;  // in place of ids_
  std::vector<size_t> document_ends_;
};

// Where the documents inside [begin, begin + length) start, counted from `begin`. The first entry
// is always 0: a window begins with an empty state. A model resets its state at each of them, so
// that packed documents don't see each other.
std::vector<size_t> SegmentStarts(const TokenData& data, size_t begin, size_t length);

}  // namespace hognose::train
