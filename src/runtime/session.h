// Session: one sequence. Feeds tokens, gives logits, and lends its whole memory as a value.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "core/status.h"
#include "models/language_model.h"
#include "nn/mixer.h"
#include "runtime/model.h"

namespace hognose::runtime {

// Everything that a sequence remembers. Deep copies by CopyFrom and Session::Clone only.
struct SessionState {
  nn::State state;
  uint64_t position = 0;      // tokens seen
  std::vector<float> logits;  // [V] of the last token; meaningless at position 0

  void CopyFrom(const SessionState& other);
};

struct SessionOptions {
  // Tokens of a prompt that are computed together. More rows share one pass over the weights; the
  // buffers grow with it, never with the prompt.
  size_t piece = 256;
  // Every product in f32; otherwise activations may be rounded to bf16 where that is faster.
  bool exact = false;
  // Adds up where the time goes; must outlive the session.
  nn::Profile* profile = nullptr;
};

// Fails on an id outside the embedding.
core::Status CheckIds(const Model& model, std::span<const int32_t> ids);

class Session {
 public:
  static core::Result<Session> Create(std::shared_ptr<const Model> model,
                                      const SessionOptions& options);

  // Called between pieces with the number of tokens done; false stops (what is done stays done).
  using Progress = core::FunctionRef<bool(size_t done)>;

  // Feeds ids (any number, also none); afterwards logits() are those of the last one. An id outside
  // the embedding is an error, and nothing was fed then. Any split over calls gives the same bits.
  core::Status Prefill(std::span<const int32_t> ids);
  core::Status Prefill(std::span<const int32_t> ids, Progress progress);
  core::Status Step(int32_t id) { return Prefill({&id, 1}); }

  // Prefill that hands out the logits of every token: row i after ids[i]. A sink that returns false
  // stops it at the end of the piece: position() says how many tokens were fed.
  using RowSink = core::FunctionRef<bool(size_t row, std::span<const float> logits)>;
  core::Status Score(std::span<const int32_t> ids, RowSink sink);

  // [V] of the last token; empty at position 0.
  std::span<const float> logits() const;
  uint64_t position() const { return state_.position; }
  void Reset();

  const SessionState& state() const { return state_; }
  // The state must be of the same model.
  void Restore(const SessionState& state) { state_.CopyFrom(state); }
  core::Result<SessionState> NewState() const;
  // Bytes of this session: state, logits and buffers.
  size_t bytes() const;

  const Model& model() const { return *model_; }

 private:
  Session(std::shared_ptr<const Model> model, models::Workspace workspace, SessionState state,
          size_t piece);
  friend class Batch;  // feeds several sessions at once

  std::shared_ptr<const Model> model_;
  models::Workspace workspace_;
  SessionState state_;
  size_t piece_;
};

}  // namespace hognose::runtime
