#include "io/tokenizer/decode_stages.h"

#include <cstring>

#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

bool IsUtf8(std::string_view text) { return FindInvalidUtf8(text) == std::string_view::npos; }

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

constexpr size_t kByteTokenSize = 6;

// The byte that "<0xE2>" stands for.
std::optional<char> ByteOfToken(std::string_view token) {
  if (token.size() != kByteTokenSize || !token.starts_with("<0x") || token.back() != '>') {
    return std::nullopt;
  }
  // The library's number parser takes a plus sign.
  const auto high = token[3] == '+' ? std::optional<int>(0) : HexDigit(token[3]);
  const auto low = HexDigit(token[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high * 16 + *low);
}

std::string Record(std::initializer_list<std::string_view> fields) {
  std::string record;
  for (const std::string_view field : fields) PutString(field, &record);
  return record;
}

std::string_view Flag(bool flag) { return flag ? "1" : ""; }

}  // namespace

void PutString(std::string_view text, std::string* record) {
  uint64_t size = text.size();
  for (int i = 0; i < 8; ++i, size >>= 8) record->push_back(static_cast<char>(size & 0xFF));
  record->append(text);
}

bool GetString(std::string_view* record, std::string_view* text) {
  if (record->size() < 8) return false;
  uint64_t size = 0;
  for (int i = 8; i-- > 0;) size = size << 8 | static_cast<uint8_t>((*record)[i]);
  record->remove_prefix(8);
  if (size > record->size()) return false;
  *text = record->substr(0, size);
  record->remove_prefix(size);
  return true;
}

core::Status JoinStage::Begin() {
  if (open_) return {};
  open_ = true;
  return any_ ? next_->Text(" ") : core::Status();
}

core::Status JoinStage::Text(std::string_view text) {
  HOGNOSE_TRY(Begin());
  return next_->Text(text);
}

core::Status JoinStage::EndToken() {
  HOGNOSE_TRY(Begin());
  open_ = false;
  any_ = true;
  return {};
}

core::Status JoinStage::Finish() {
  HOGNOSE_TRY(next_->EndToken());
  return next_->Finish();
}

std::string JoinStage::Save() const { return Record({Flag(any_), Flag(open_)}); }

bool JoinStage::Load(std::string_view saved) {
  std::string_view any, open;
  if (!GetString(&saved, &any) || !GetString(&saved, &open) || !saved.empty()) return false;
  any_ = !any.empty();
  open_ = !open.empty();
  return true;
}

core::Status ByteLevelStage::Text(std::string_view text) {
  token_ += text;
  return {};
}

core::Status ByteLevelStage::EndToken() {
  AppendFromByteLevel(token_, &bytes_);
  token_.clear();
  std::string text;
  size_t done = 0;
  while (done < bytes_.size()) {
    const std::string_view rest = std::string_view(bytes_).substr(done);
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Kind::kIncomplete) break;
    text += step.kind == Utf8Kind::kValid ? rest.substr(0, step.length) : kReplacementCharacter;
    done += step.length;
  }
  bytes_.erase(0, done);
  return text.empty() ? core::Status() : next_->Text(text);
}

core::Status ByteLevelStage::Finish() {
  if (!bytes_.empty()) HOGNOSE_TRY(next_->Text(kReplacementCharacter));
  bytes_.clear();
  HOGNOSE_TRY(next_->EndToken());
  return next_->Finish();
}

std::string ByteLevelStage::Save() const { return Record({token_, bytes_}); }

bool ByteLevelStage::Load(std::string_view saved) {
  std::string_view token, bytes;
  if (!GetString(&saved, &token) || !GetString(&saved, &bytes) || !saved.empty()) return false;
  const bool unfinished = bytes.empty() || (NextUtf8(bytes).kind == Utf8Kind::kIncomplete &&
                                            NextUtf8(bytes).length == bytes.size());
  if (!IsUtf8(token) || !unfinished) return false;
  token_ = token;
  bytes_ = bytes;
  return true;
}

core::Status ByteFallbackStage::Text(std::string_view text) {
  if (passing_) return next_->Text(text);
  token_ += text;
  if (token_.size() <= kByteTokenSize) return {};
  HOGNOSE_TRY(FlushRow());
  passing_ = true;
  return next_->Text(std::exchange(token_, {}));
}

core::Status ByteFallbackStage::EndToken() {
  if (std::exchange(passing_, false)) return next_->EndToken();
  const std::string token = std::exchange(token_, {});
  if (const auto byte = ByteOfToken(token)) {
    row_.push_back(*byte);
    return {};
  }
  HOGNOSE_TRY(FlushRow());
  HOGNOSE_TRY(next_->Text(token));
  return next_->EndToken();
}

core::Status ByteFallbackStage::FlushRow() {
  if (row_.empty()) return {};
  const std::string row = std::exchange(row_, {});
  if (IsUtf8(row)) {
    HOGNOSE_TRY(next_->Text(row));
    return next_->EndToken();
  }
  for (size_t i = 0; i < row.size(); ++i) {
    HOGNOSE_TRY(next_->Text(kReplacementCharacter));
    HOGNOSE_TRY(next_->EndToken());
  }
  return {};
}

core::Status ByteFallbackStage::Finish() {
  HOGNOSE_TRY(FlushRow());
  return next_->Finish();
}

std::string ByteFallbackStage::Save() const { return Record({token_, Flag(passing_), row_}); }

bool ByteFallbackStage::Load(std::string_view saved) {
  std::string_view token, passing, row;
  if (!GetString(&saved, &token) || !GetString(&saved, &passing) || !GetString(&saved, &row) ||
      !saved.empty() || !IsUtf8(token)) {
    return false;
  }
  token_ = token;
  passing_ = !passing.empty();
  row_ = row;
  return true;
}

core::Status FuseStage::Finish() {
  HOGNOSE_TRY(next_->EndToken());
  return next_->Finish();
}

core::Status StripStage::Text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view c = text.substr(i, CharLength(text[i]));
    i += c.size();
    const bool same = c == content_;
    if (!inside_ && same && taken_ < start_) {
      ++taken_;
      continue;
    }
    inside_ = true;
    if (same && stop_ > 0) {
      if (held_ == stop_) {
        out += c;
      } else {
        ++held_;
      }
      continue;
    }
    for (; held_ > 0; --held_) out += content_;
    out += c;
  }
  return out.empty() ? core::Status() : next_->Text(out);
}

core::Status StripStage::EndToken() {
  taken_ = held_ = 0;
  inside_ = false;
  return next_->EndToken();
}

std::string StripStage::Save() const {
  return Record({std::to_string(taken_), Flag(inside_), std::to_string(held_)});
}

bool StripStage::Load(std::string_view saved) {
  std::string_view taken, inside, held;
  if (!GetString(&saved, &taken) || !GetString(&saved, &inside) || !GetString(&saved, &held) ||
      !saved.empty()) {
    return false;
  }
  const auto number = [](std::string_view digits, size_t limit) -> std::optional<size_t> {
    size_t value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9' || value > limit) return std::nullopt;
      value = value * 10 + static_cast<size_t>(digit - '0');
    }
    if (digits.empty() || value > limit) return std::nullopt;
    return value;
  };
  const auto taken_value = number(taken, start_), held_value = number(held, stop_);
  if (!taken_value || !held_value) return false;
  taken_ = *taken_value;
  held_ = *held_value;
  inside_ = !inside.empty();
  return true;
}

core::Status ReplaceStage::Text(std::string_view text) {
  token_ += text;
  return {};
}

core::Status ReplaceStage::EndToken() {
  std::string out;
  HOGNOSE_TRY(ReplaceMatches(*pattern_, std::exchange(token_, {}), content_, &out));
  HOGNOSE_TRY(next_->Text(out));
  return next_->EndToken();
}

bool ReplaceStage::Load(std::string_view saved) {
  if (!IsUtf8(saved)) return false;
  token_ = saved;
  return true;
}

core::Status MetaspaceStage::Text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view c = text.substr(i, CharLength(text[i]));
    i += c.size();
    if (c != replacement_) {
      out += c;
    } else if (!first_ || !drop_first_) {
      out += ' ';
    }
  }
  return next_->Text(out);
}

core::Status MetaspaceStage::EndToken() {
  first_ = false;
  return next_->EndToken();
}

bool MetaspaceStage::Load(std::string_view saved) {
  if (!saved.empty() && saved != "1") return false;
  first_ = saved.empty();
  return true;
}

core::Status WordEndStage::Text(std::string_view text) {
  token_ += text;
  return {};
}

core::Status WordEndStage::EndToken() {
  HOGNOSE_TRY(Flush(" "));
  held_ = std::exchange(token_, {});
  return {};
}

core::Status WordEndStage::Finish() {
  HOGNOSE_TRY(Flush(""));
  return next_->Finish();
}

core::Status WordEndStage::Flush(std::string_view replacement) {
  if (!held_) return {};
  std::string out;
  HOGNOSE_TRY(ReplaceMatches(*suffix_, *held_, replacement, &out));
  held_.reset();
  HOGNOSE_TRY(next_->Text(out));
  return next_->EndToken();
}

std::string WordEndStage::Save() const {
  return Record({token_, Flag(held_.has_value()), held_.value_or("")});
}

bool WordEndStage::Load(std::string_view saved) {
  std::string_view token, has_held, held;
  if (!GetString(&saved, &token) || !GetString(&saved, &has_held) || !GetString(&saved, &held) ||
      !saved.empty() || !IsUtf8(token) || !IsUtf8(held)) {
    return false;
  }
  token_ = token;
  held_.reset();
  if (!has_held.empty()) held_ = held;
  return true;
}

}  // namespace hognose::io::tokenizer
