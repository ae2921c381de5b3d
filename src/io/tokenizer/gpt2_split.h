// The GPT-2 word pattern, written out because most tokenizers spend their time in it:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

namespace hognose::io::tokenizer {

// Where the word that begins at `begin` ends (begin < text.size()). The words cover the text.
size_t Gpt2WordEnd(std::string_view text, size_t begin);

}  // namespace hognose::io::tokenizer
