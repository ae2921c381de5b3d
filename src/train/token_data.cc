#include "train/token_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/ids.h"
#include "io/json.h"

namespace hognose::train {
namespace {

using core::Result;
using core::Status;

constexpr std::string_view kBlank = " \t\r\n\v\f";

DataFormat Guess(std::string_view path, std::string_view text) {
  if (io::LooksLikeNpy(path, text)) return DataFormat::kNpy;
  if (text.find_first_not_of("0123456789, \t\r\n\v\f") == std::string_view::npos) {
    return DataFormat::kIds;
  }
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return DataFormat::kJsonl;
  return DataFormat::kText;
}

// Text needs a tokenizer. Who meant ids wants to know what is none.
Status NoTokenizer(const std::string& path, DataFormat asked, std::string_view text) {
  if (asked != DataFormat::kAuto) {
    return Status::Failed(
        fmt::format("{}: got text, want token ids: the model has no tokenizer", path));
  }
  const size_t at = text.find_first_not_of("0123456789, \t\r\n\v\f");
  std::string_view got = at < text.size() ? text.substr(at, 8) : "";
  got = got.substr(0, io::ValidUtf8Prefix(got));
  got = got.substr(0, got.find_first_of("\r\n"));
  return Status::Failed(
      fmt::format("{}: got text (\"{}\" at byte {}), want token ids: the model has no tokenizer",
                  path, got, at));
}

// The string "text" of one line of JSONL.
Result<std::string> LineText(std::string_view line, const std::string& where) {
  auto value = io::ParseJson(line, where);
  if (!value.ok()) {
    // The parser counts lines of its own, of which there is one.
    const std::string prefix = where + ": line 1 ";
    const std::string message = value.status().message();
    if (!message.starts_with(prefix)) return value.status();
    return Status::Failed(fmt::format("{} {}", where, message.substr(prefix.size())));
  }
  const core::Value* text = value->Find("text");
  if (text == nullptr || text->AsString() == nullptr) {
    const std::string got = value->AsObject() == nullptr ? std::string(value->TypeName())
                            : text == nullptr            ? "an object without \"text\""
                                              : fmt::format("{} as \"text\"", text->TypeName());
    return Status::Failed(
        fmt::format("{}: got {}, want an object with a string \"text\"", where, got));
  }
  return *text->AsString();
}

template <typename T>
Status CheckIds(std::span<const T> ids, size_t vocab, const std::string& path) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<uint64_t>(ids[i]) < vocab) continue;
    return Status::Failed(
        fmt::format("{}: token {}: got {}, want an id from 0 to {}", path, i, ids[i], vocab - 1));
  }
  return {};
}

template <typename T>
std::span<const T> View(const core::TensorView& tensor) {
  return {static_cast<const T*>(tensor.data), tensor.shape[0]};
}

}  // namespace

Result<TokenData> TokenData::Load(const std::string& path, const TokenOptions& options) {
  HOGNOSE_CHECK(options.vocab > 0);
  TokenData data;
  data.path_ = path;
  HOGNOSE_TRY(data.Read(options));
  if (data.size() == 0) {
    return Status::Failed(fmt::format("{}: got no tokens, want some", path));
  }
  HOGNOSE_TRY(data.Check(options.vocab));
  return data;
}

Status TokenData::Read(const TokenOptions& options) {
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path_));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  if (text.empty()) return Status::Failed(path_ + ": got an empty file, want tokens");
  DataFormat format = options.format;
  if (format == DataFormat::kAuto) format = Guess(path_, text);
  if (format == DataFormat::kIds && io::LooksLikeNpy("", text)) format = DataFormat::kNpy;
  switch (format) {
    case DataFormat::kNpy:
      return ReadNpy();
    case DataFormat::kIds: {
      HOGNOSE_ASSIGN(ids_, io::ParseIds(text, path_));
      return {};
    }
    case DataFormat::kCsv:
    case DataFormat::kAuto:
      return Status::Usage("--data-format: got csv, want ids, text, jsonl or npy for tokens");
    case DataFormat::kText:
    case DataFormat::kJsonl:
      break;
  }
  if (options.tokenizer == nullptr) return NoTokenizer(path_, options.format, text);
  if (format == DataFormat::kJsonl) return ReadJsonl(text, options);
  auto ids = options.tokenizer->Encode(text);
  if (!ids.ok()) return Status::Failed(path_ + ": " + ids.status().message());
  ids_ = std::move(*ids);
  return {};
}

Status TokenData::ReadNpy() {
  HOGNOSE_ASSIGN(io::NpyArray array, io::OpenNpy(path_));
  const core::TensorView& tensor = array.tensor;
  if (tensor.rank != 1 ||
      (tensor.dtype != core::DType::kI64 && tensor.dtype != core::DType::kI32)) {
    return Status::Failed(
        fmt::format("{}: got {}, want i64 or i32 of one dimension", path_, core::ToString(tensor)));
  }
  array_ = std::move(array);
  return {};
}

Status TokenData::ReadJsonl(std::string_view text, const TokenOptions& options) {
  for (size_t at = 0, number = 1; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(kBlank) == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", path_, number);
    HOGNOSE_ASSIGN(const std::string document, LineText(line, where));
    const auto ids = options.tokenizer->Encode(document);
    if (!ids.ok()) return Status::Failed(where + ": " + ids.status().message());
    ids_.insert(ids_.end(), ids->begin(), ids->end());
    if (options.end_of_text) ids_.push_back(*options.end_of_text);
    const size_t last = document_ends_.empty() ? 0 : document_ends_.back();
    if (ids_.size() > last) document_ends_.push_back(ids_.size());
  }
  return {};
}

Status TokenData::Check(size_t vocab) const {
  if (!array_) return CheckIds(std::span<const int32_t>(ids_), vocab, path_);
  if (array_->tensor.dtype == core::DType::kI64) {
    return CheckIds(View<int64_t>(array_->tensor), vocab, path_);
  }
  return CheckIds(View<int32_t>(array_->tensor), vocab, path_);
}

size_t TokenData::size() const { return array_ ? array_->tensor.shape[0] : ids_.size(); }

void TokenData::Copy(size_t begin, std::span<int32_t> out) const {
  HOGNOSE_CHECK(begin <= size() && out.size() <= size() - begin);
  if (array_ && array_->tensor.dtype == core::DType::kI64) {
    const auto from = View<int64_t>(array_->tensor).subspan(begin, out.size());
    std::transform(from.begin(), from.end(), out.begin(),
                   [](int64_t id) { return static_cast<int32_t>(id); });
    return;
  }
  const auto all = array_ ? View<int32_t>(array_->tensor) : std::span<const int32_t>(ids_);
  const auto from = all.subspan(begin, out.size());
  std::copy(from.begin(), from.end(), out.begin());
}

std::string TokenData::Digest() const {
  constexpr size_t kBlock = 4096;
  const auto bytes = [](auto values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  };
  io::Hasher hasher;
  std::vector<int32_t> block;
  for (size_t begin = 0; begin < size(); begin += kBlock) {
    block.resize(std::min(kBlock, size() - begin));
    Copy(begin, block);
    hasher.Add(bytes(std::span<const int32_t>(block)));
  }
  hasher.Add(bytes(document_ends()));
  return hasher.Hex();
}

std::vector<size_t> SegmentStarts(const TokenData& data, size_t begin, size_t length) {
  std::vector<size_t> starts = {0};
  const auto ends = data.document_ends();
  for (auto end = std::upper_bound(ends.begin(), ends.end(), begin);
       end != ends.end() && *end < begin + length; ++end) {
    starts.push_back(*end - begin);
  }
  return starts;
}

}  // namespace hognose::train
