// Pieces: the text on its way from the input to the model, cut further by every stage.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {

// Text that stages made; pieces point into it.
class TextStore {
 public:
  std::string_view Keep(std::string text) { return texts_.emplace_back(std::move(text)); }

 private:
  std::deque<std::string> texts_;
};

struct Piece {
  std::string_view text = {};
  int32_t id = -1;  // of an added token; then no later stage looks at it
  // Whether the piece begins with what came from the first character of the input, and how many
  // of its bytes did (Metaspace's "first" asks).
  bool at_origin = false;
  size_t origin_bytes = 0;
  // `text` is still bytes; what counts is how they are written in the ByteLevel alphabet.
  bool byte_level = false;

  static Piece Whole(std::string_view text) {
    return {
        .text = text, .at_origin = true, .origin_bytes = text.empty() ? 0 : CharLength(text[0])};
  }
  // Bytes [begin, end).
  Piece Slice(size_t begin, size_t end) const {
    Piece slice = *this;
    slice.text = text.substr(begin, end - begin);
    slice.at_origin = begin < origin_bytes;
    slice.origin_bytes = slice.at_origin ? std::min(origin_bytes, end) - begin : 0;
    return slice;
  }
};

using Pieces = std::vector<Piece>;

}  // namespace hognose::io::tokenizer
