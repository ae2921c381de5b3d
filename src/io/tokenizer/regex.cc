#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/tokenizer/regex.h"

#include <pcre2.h>

#include "io/tokenizer/regex_syntax.h"
#include "io/tokenizer/unicode.h"

namespace hognose::io::tokenizer {
namespace {

// Steps of one match. Patterns that published tokenizers use need a few per character of a word;
// this is a second or so.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;

std::string Message(int code) {
  PCRE2_UCHAR buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof(buffer));
  return length < 0 ? "error " + std::to_string(code)
                    : std::string(reinterpret_cast<const char*>(buffer), size_t(length));
}

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

core::Result<Regex> Regex::Compile(std::string_view pattern) {
  HOGNOSE_ASSIGN(const std::string translated, TranslateRegex(pattern));
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (context == nullptr) return core::Status::Failed("out of memory");
  // Not what this system's PCRE2 happens to be built with.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, context.get());
  if (code->code == nullptr) return core::Status::Failed(Message(error));
  // Without JIT (unsupported processor, no executable memory) the interpreter does it.
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code->context = pcre2_match_context_create(nullptr);
  if (code->context == nullptr) return core::Status::Failed("out of memory");
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Regex(std::move(code));
}

core::Status Regex::ForEachMatch(std::string_view text,
                                 core::FunctionRef<void(size_t, size_t)> match) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr));
  if (data == nullptr) return core::Status::Failed("regular expression: out of memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t start = 0;
  size_t last_end = std::string_view::npos;
  while (start <= text.size()) {
    int rc = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, data.get(),
                         code_->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter has the heap
      rc = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), code_->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return core::Status::Failed("regular expression: " + Message(rc));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const size_t begin = ends[0], end = ends[1];
    if (begin > end) return core::Status::Failed("regular expression: \\K in a lookaround");
    if (begin == end && end == last_end) {
      start = end < text.size() ? end + CharLength(text[end]) : end + 1;
      continue;
    }
    match(begin, end);
    start = last_end = end;
  }
  return {};
}

}  // namespace hognose::io::tokenizer
