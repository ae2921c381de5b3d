// PreTokenizer: cuts the text into words; the model encodes each of them alone.
#pragma once

#include <memory>
#include <vector>

#include "core/function_ref.h"
#include "core/status.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/pieces.h"

namespace hognose::io::tokenizer {

class PreTokenizer {
 public:
  using Sink = core::FunctionRef<core::Status(const Piece&)>;

  // Types: ByteLevel Split Digits Punctuation Metaspace Whitespace WhitespaceSplit
  // CharDelimiterSplit BertPreTokenizer Sequence, or null.
  static core::Result<PreTokenizer> Parse(const Field& field);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Gives the words of `piece` to `sink`, one after another; none of them is empty.
  core::Status Apply(const Piece& piece, TextStore& store, Sink sink) const {
    return Run(0, piece, store, sink);
  }

  class Step {
   public:
    virtual ~Step() = default;
    // `piece` is not empty; what goes to `sink` may be.
    virtual core::Status Apply(const Piece& piece, TextStore& store, Sink sink) const = 0;
  };
  using Steps = std::vector<std::unique_ptr<Step>>;

 private:
  PreTokenizer();
  core::Status Run(size_t step, const Piece& piece, TextStore& store, Sink sink) const;

  Steps steps_;
};

}  // namespace hognose::io::tokenizer
