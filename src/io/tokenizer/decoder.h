// Decoder: tokens back to text, one token after another.
//
// The tokenizers library hands the whole list of tokens from one decoder of a Sequence to the next.
// Here each of them is a stage that takes tokens in parts, keeps back only what it can't decide yet
// and passes on the rest, so that the text can be streamed and is the same in the end.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"

namespace hognose::io::tokenizer {

// Takes tokens: each comes as any number of Text calls (whole characters) and one EndToken.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual core::Status Text(std::string_view text) = 0;
  virtual core::Status EndToken() = 0;
  virtual core::Status Finish() = 0;
};

class DecodeStage : public TokenSink {
 public:
  void set_next(TokenSink* next) { next_ = next; }
  virtual std::unique_ptr<DecodeStage> Clone() const = 0;
  // What is kept back, as bytes. Load is false for bytes that Save could not have made.
  virtual std::string Save() const = 0;
  [[nodiscard]] virtual bool Load(std::string_view saved) = 0;

 protected:
  TokenSink* next_ = nullptr;
};

class Decoder {
 public:
  // Types: ByteLevel ByteFallback Fuse Strip Replace Metaspace BPEDecoder Sequence, or null (tokens
  // joined by spaces).
  static core::Result<Decoder> Parse(const Field& field);

  using Stages = std::vector<std::unique_ptr<DecodeStage>>;
  // Fresh stages; the last one's next is to be set.
  Stages MakeStages() const;

 private:
  Stages stages_;  // what is cloned
};

// The stages of one stream and the text that has come out of them.
class DecodeChain {
 public:
  explicit DecodeChain(const Decoder& decoder);
  DecodeChain(const DecodeChain&) = delete;
  DecodeChain& operator=(const DecodeChain&) = delete;

  core::Status Push(std::string_view token);
  core::Status Finish();
  std::string Take() { return std::exchange(end_.text, {}); }

  std::string Save() const;
  core::Status Load(std::string_view saved);

 private:
  struct End final : TokenSink {
    core::Status Text(std::string_view part) override { return text.append(part), core::Status(); }
    core::Status EndToken() override { return {}; }
    core::Status Finish() override { return {}; }
    std::string text;
  };

  TokenSink& first() { return stages_.empty() ? static_cast<TokenSink&>(end_) : *stages_.front(); }

  Decoder::Stages stages_;
  End end_;
};

}  // namespace hognose::io::tokenizer
