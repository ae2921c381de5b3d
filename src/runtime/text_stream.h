// TextStream: generated tokens in, text that may be printed out. Holds back an unfinished character
// and whatever may still become a stop text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/tokenizer.h"

namespace hognose::runtime {

class TextStream {
 public:
  // Empty stop texts are ignored.
  TextStream(const io::Tokenizer& tokenizer, std::vector<std::string> stops);

  // The text that `id` makes certain. After a stop text was seen, stopped() is true, and neither it
  // nor anything behind it comes out.
  core::Result<std::string> Push(int32_t id);
  // What is still held back, an unfinished character as U+FFFD.
  core::Result<std::string> Finish();
  bool stopped() const { return stopped_; }

  // What is held back, as opaque bytes, for a state file.
  std::string Save() const;
  core::Status Restore(std::string_view saved);

 private:
  // Takes from held_ what can't be part of a stop text any more.
  std::string Release();

  io::Tokenizer::Stream decoder_;
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace hognose::runtime
