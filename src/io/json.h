// JSON text to core::Value and back.
//
// Takes RFC 8259 and, since published configs hold them, the bare words Infinity, -Infinity and NaN.
// Refuses duplicate keys, invalid UTF-8, trailing text and nesting deeper than kMaxJsonDepth.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/value.h"

namespace hognose::io {

inline constexpr size_t kMaxJsonDepth = 64;

// Errors: "<where>: line 3 column 14: ...". `where` is the file name for messages.
core::Result<core::Value> ParseJson(std::string_view text, std::string_view where);

// `indent` 0: one line. Floats print the shortest text that reads back the same bits.
std::string ToJson(const core::Value& value, int indent = 0);

}  // namespace hognose::io
