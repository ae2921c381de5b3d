// The ByteLevel alphabet: each byte is written as one printable character (GPT-2's table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hognose::io::tokenizer {

// The character that stands for `byte`: U+0021..U+0143.
char32_t ByteToChar(uint8_t byte);
std::optional<uint8_t> CharToByte(char32_t c);

// `bytes` written in the alphabet, as UTF-8.
void AppendByteLevel(std::string_view bytes, std::string* out);
// The bytes that `text` stands for, or `text` itself if a character is not of the alphabet.
void AppendFromByteLevel(std::string_view text, std::string* out);

}  // namespace hognose::io::tokenizer
