// The four normal forms of Unicode, as the tokenizers library computes them.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace hognose::io::tokenizer {

struct NormalForm {
  bool compose;        // NFC, NFKC
  bool compatibility;  // NFKC, NFKD
};

// False if `text` is unchanged (then `out` is not touched).
core::Result<bool> ToNormalForm(NormalForm form, std::string_view text, std::string* out);

}  // namespace hognose::io::tokenizer
