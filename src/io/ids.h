// Token ids as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace hognose::io {

// Decimal ids between whitespace and commas. Errors: "<where>: token 3: got ...".
core::Result<std::vector<int32_t>> ParseIds(std::string_view text, const std::string& where);

}  // namespace hognose::io
