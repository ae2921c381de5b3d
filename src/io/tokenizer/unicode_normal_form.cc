#include "io/tokenizer/unicode_normal_form.h"

#include <utf8proc.h>

#include <utility>
#include <vector>

#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

// These are their own normal form, and nothing before them combines with them.
bool IsPlain(NormalForm form, char32_t c) {
  return c < 0x80 || (form.compose && !form.compatibility && c < 0x300);
}

core::Status AppendForm(NormalForm form, std::string_view text, std::vector<int32_t>* buffer,
                        std::string* out) {
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (form.compatibility ? UTF8PROC_COMPAT : 0));
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  const auto fail = [](utf8proc_ssize_t code) {
    return core::Status::Failed(std::string("normalizer: ") + utf8proc_errmsg(code));
  };
  auto room = static_cast<utf8proc_ssize_t>(buffer->size());
  auto count = utf8proc_decompose(bytes, size, buffer->data(), room, options);
  if (count > room) {
    buffer->resize(static_cast<size_t>(count));
    count = utf8proc_decompose(bytes, size, buffer->data(), count, options);
  }
  if (count < 0) return fail(count);
  count = utf8proc_normalize_utf32(buffer->data(), count, options);
  if (count < 0) return fail(count);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendChar(static_cast<char32_t>((*buffer)[static_cast<size_t>(i)]), out);
  }
  return {};
}

}  // namespace

core::Result<bool> ToNormalForm(NormalForm form, std::string_view text, std::string* out) {
  if (IsAscii(text)) return false;
  std::vector<int32_t> buffer(256);
  size_t copied = 0;  // text before this is in `out`
  size_t run = 0;     // where characters that belong together begin
  for (size_t i = 0; i < text.size();) {
    const char32_t c = DecodeChar(text.data() + i);
    const size_t next = i + CharLength(text[i]);
    if (IsPlain(form, c)) {
      run = std::exchange(i, next);
      continue;
    }
    if (IsInert(c, form.compatibility)) {
      run = i = next;
      continue;
    }
    size_t end = next;
    while (end < text.size()) {
      const char32_t follower = DecodeChar(text.data() + end);
      if (IsPlain(form, follower) || IsInert(follower, form.compatibility)) break;
      end += CharLength(text[end]);
    }
    out->append(text.substr(copied, run - copied));
    HOGNOSE_TRY(AppendForm(form, text.substr(run, end - run), &buffer, out));
    copied = run = i = end;
  }
  if (copied == 0) return false;
  out->append(text.substr(copied));
  return true;
}

}  // namespace hognose::io::tokenizer
