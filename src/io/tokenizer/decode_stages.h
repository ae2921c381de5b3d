// The stages that decoders are made of. Each documents what it keeps back.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/tokenizer/decoder.h"
#include "io/tokenizer/pattern.h"

namespace hognose::io::tokenizer {

// A record of strings, for what stages save.
void PutString(std::string_view text, std::string* record);
[[nodiscard]] bool GetString(std::string_view* record, std::string_view* text);

// Gives Clone to a stage that can be copied.
template <typename Stage>
class CopyableStage : public DecodeStage {
 public:
  std::unique_ptr<DecodeStage> Clone() const override {
    return std::make_unique<Stage>(static_cast<const Stage&>(*this));
  }
};

// Joins tokens by a space. Keeps back nothing; remembers whether a token has come.
class JoinStage final : public CopyableStage<JoinStage> {
 public:
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override;
  std::string Save() const override;
  bool Load(std::string_view saved) override;

 private:
  core::Status Begin();
  bool any_ = false;
  bool open_ = false;
};

// All tokens' bytes as one token. Keeps back an unfinished character.
class ByteLevelStage final : public CopyableStage<ByteLevelStage> {
 public:
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override;
  std::string Save() const override;
  bool Load(std::string_view saved) override;

 private:
  std::string token_;
  std::string bytes_;
};

// Tokens "<0xE2>" in a row become one token of text, or U+FFFD each if the bytes of the row are not
// UTF-8. Keeps back the row: only its end decides.
class ByteFallbackStage final : public CopyableStage<ByteFallbackStage> {
 public:
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override;
  std::string Save() const override;
  bool Load(std::string_view saved) override;

 private:
  core::Status FlushRow();
  std::string token_;
  bool passing_ = false;  // the token at hand is too long to be a byte
  std::string row_;
};

// All tokens become one. Keeps back nothing.
class FuseStage final : public CopyableStage<FuseStage> {
 public:
  core::Status Text(std::string_view text) override { return next_->Text(text); }
  core::Status EndToken() override { return {}; }
  core::Status Finish() override;
  std::string Save() const override { return {}; }
  bool Load(std::string_view saved) override { return saved.empty(); }
};

// Takes up to `start` times a character from the start of each token and up to `stop` times from
// its end. Keeps back those that may be at the end.
class StripStage final : public CopyableStage<StripStage> {
 public:
  StripStage(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override { return next_->Finish(); }
  std::string Save() const override;
  bool Load(std::string_view saved) override;

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
  size_t taken_ = 0;  // from the start of this token
  bool inside_ = false;
  size_t held_ = 0;  // characters `content_` at the end so far
};

// Replaces matches inside each token. Keeps back the token.
class ReplaceStage final : public CopyableStage<ReplaceStage> {
 public:
  ReplaceStage(std::shared_ptr<const Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override { return next_->Finish(); }
  std::string Save() const override { return token_; }
  bool Load(std::string_view saved) override;

 private:
  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
  std::string token_;
};

// A character becomes a space, in the first token nothing. Keeps back nothing.
class MetaspaceStage final : public CopyableStage<MetaspaceStage> {
 public:
  MetaspaceStage(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override { return next_->Finish(); }
  std::string Save() const override { return first_ ? "" : "1"; }
  bool Load(std::string_view saved) override;

 private:
  std::string replacement_;
  bool drop_first_;
  bool first_ = true;
};

// The suffix that ends words becomes a space, in the last token nothing. Keeps back one token.
class WordEndStage final : public CopyableStage<WordEndStage> {
 public:
  explicit WordEndStage(std::string suffix) : suffix_(MakeLiteral(std::move(suffix))) {}
  core::Status Text(std::string_view text) override;
  core::Status EndToken() override;
  core::Status Finish() override;
  std::string Save() const override;
  bool Load(std::string_view saved) override;

 private:
  core::Status Flush(std::string_view replacement);
  std::shared_ptr<const Pattern> suffix_;
  std::string token_;
  std::optional<std::string> held_;
};

}  // namespace hognose::io::tokenizer
