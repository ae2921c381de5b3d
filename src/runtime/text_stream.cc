#include "runtime/text_stream.h"

#include <fmt/format.h>

#include <algorithm>

namespace hognose::runtime {

TextStream::TextStream(const io::Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer, /*skip_special=*/true), stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string TextStream::Release() {
  // The stop text that is complete first ends everything (the longest of several that end there),
  // so that it doesn't matter how the text is split into tokens.
  size_t begin = std::string::npos, end = std::string::npos;
  for (const auto& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin))
      continue;
    begin = at;
    end = at + stop.size();
  }
  if (begin != std::string::npos) {
    stopped_ = true;
    std::string text = held_.substr(0, begin);
    held_.clear();
    return text;
  }
  // Else keep the longest tail that begins some stop text.
  size_t keep = 0;
  for (const auto& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
    }
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return text;
}

core::Result<std::string> TextStream::Push(int32_t id) {
  if (stopped_) return std::string();
  HOGNOSE_ASSIGN(const std::string piece, decoder_.Push(id));
  held_ += piece;
  return Release();
}

core::Result<std::string> TextStream::Finish() {
  if (stopped_) return std::string();
  HOGNOSE_ASSIGN(const std::string piece, decoder_.Finish());
  held_ += piece;
  std::string text = Release();
  if (!stopped_) text += std::exchange(held_, {});
  return text;
}

std::string TextStream::Save() const {
  return fmt::format("{}:{}{}", held_.size(), held_, decoder_.Save());
}

core::Status TextStream::Restore(std::string_view saved) {
  const auto fault = core::Status::Failed("the held-back text is damaged");
  const size_t colon = saved.find(':');
  if (colon == 0 || colon == std::string_view::npos || colon > 9) return fault;
  size_t size = 0;
  for (const char c : saved.substr(0, colon)) {
    if (c < '0' || c > '9') return fault;
    size = size * 10 + static_cast<size_t>(c - '0');
  }
  const std::string_view rest = saved.substr(colon + 1);
  if (size > rest.size()) return fault;
  HOGNOSE_TRY(decoder_.Restore(rest.substr(size)));
  held_ = rest.substr(0, size);
  stopped_ = false;
  return {};
}

}  // namespace hognose::runtime
