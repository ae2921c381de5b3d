// Batch: feeds several sessions of one model in one pass over the weights.
//
// Sessions join and leave at any call: a call names those that take part. What a session gets is
// bit for bit what it would get alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/status.h"
#include "runtime/session.h"

namespace hognose::runtime {

class Batch {
 public:
  // The next tokens of one session: one when it generates, any number when it reads a prompt.
  struct Input {
    Session* session = nullptr;
    std::span<const int32_t> ids;
  };

  // `rows`: tokens of all sessions together that one pass computes; longer inputs take several
  // passes.
  static core::Result<Batch> Create(std::shared_ptr<const Model> model, size_t rows, bool exact);

  // Feeds every input; afterwards each session's logits() are those of its last token. Errors (a
  // session of another model, the same one twice, an id outside the embedding) are found before
  // anything is fed. Allocates nothing.
  core::Status Feed(std::span<const Input> inputs);

 private:
  Batch(std::shared_ptr<const Model> model, models::Workspace workspace, size_t rows);
  core::Status Check(std::span<const Input> inputs) const;
  // Takes up to the batch's rows of what is left of the inputs. False when nothing was left.
  bool Collect(std::span<const Input> inputs);
  void Finish(std::span<const Input> inputs);

  std::shared_ptr<const Model> model_;
  models::Workspace workspace_;
  size_t rows_;
  // Of the pass at hand; room for `rows_`.
  std::vector<int32_t> ids_;
  std::vector<models::Part> parts_;
  std::vector<size_t> inputs_;  // the input of each part
  std::vector<size_t> done_;    // tokens fed of each input
  std::vector<float> logits_;   // [kLogitRows, V]
};

}  // namespace hognose::runtime
