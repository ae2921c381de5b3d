// Generate: the loop from logits to text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/status.h"
#include "runtime/sampler.h"
#include "runtime/session.h"
#include "runtime/text_stream.h"

namespace hognose::runtime {

enum class StopReason { kLength, kEos, kStop, kInterrupted };
std::string_view Name(StopReason reason);  // "length", "eos", "stop", "interrupted"

struct GenerateOptions {
  size_t max_tokens = 128;
  bool ignore_eos = false;  // an end-of-text token is never drawn
  // The last token is fed too, so that the session's state covers all of the text.
  bool feed_last = false;
};

struct Generation {
  std::vector<int32_t> ids;  // without the end-of-text token
  StopReason reason = StopReason::kLength;
  double seconds = 0.0;
};

// Draws and feeds tokens after whatever the session has seen (position > 0). Text goes to `sink` as
// soon as it is certain; it returns false to stop early (interrupt, closed pipe), which is looked
// at once a token. What `text` still holds back at the end is the caller's to finish or save.
using TextSink = core::FunctionRef<bool(std::string_view text)>;
core::Result<Generation> Generate(Session& session, Sampler& sampler, TextStream& text,
                                  const GenerateOptions& options, TextSink sink);

// The mask of tokens that may be drawn: the model's, without its end-of-text tokens if asked.
std::vector<bool> DrawableTokens(const Model& model, bool ignore_eos);

}  // namespace hognose::runtime
