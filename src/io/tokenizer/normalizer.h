// Normalizer: changes the text before it is cut into words.
#pragma once

#include <memory>
#include <vector>

#include "core/status.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/pieces.h"

namespace hognose::io::tokenizer {

class Normalizer {
 public:
  // Types: NFC NFD NFKC NFKD Lowercase Strip StripAccents Prepend Replace ByteLevel Sequence, or
  // null.
  static core::Result<Normalizer> Parse(const Field& field);
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  // Replaces the piece's text; what is new is kept in `store`.
  core::Status Apply(Piece* piece, TextStore& store) const;

  class Step {
   public:
    virtual ~Step() = default;
    virtual core::Status Apply(Piece* piece, TextStore& store) const = 0;
  };
  using Steps = std::vector<std::unique_ptr<Step>>;

 private:
  Normalizer();

  Steps steps_;
};

}  // namespace hognose::io::tokenizer
