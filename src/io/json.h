// JSON text to core::Value and back.
//
// Takes RFC 8259 and, since published configs hold them, the bare words Infinity, -Infinity and
// NaN. Refuses duplicate keys, invalid UTF-8, trailing text, nesting deeper than kMaxJsonDepth and
// numbers above the range of double (1e999; what is too small becomes 0). Numbers without fraction
// and exponent are integers; one that doesn't fit in int64 becomes the nearest double, so that
// AsInt() says no.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/value.h"

namespace hognose::io {

inline constexpr size_t kMaxJsonDepth = 64;

// Errors: "<where>: line 3 column 14: ...". `where` is the file name for messages; columns count
// characters.
core::Result<core::Value> ParseJson(std::string_view text, std::string_view where);

// `indent` 0: one line. Floats print the shortest text that reads back the same bits (a NaN reads
// back as the quiet NaN); invalid UTF-8 in strings prints as U+FFFD.
std::string ToJson(const core::Value& value, int indent = 0);

// The length of the longest prefix of `text` that is UTF-8 (no surrogates, no overlong forms).
size_t ValidUtf8Prefix(std::string_view text);
inline bool IsUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

}  // namespace hognose::io
