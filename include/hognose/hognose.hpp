// Hognose's C++ API: load a checkpoint, feed tokens, read logits, keep and move the state.
//
// Everything that can go wrong is a Status or a Result; nothing throws, prints or exits. Objects
// are handles: cheap to move, destroyed with their last owner. A Session may be used by one thread
// at a time; sessions of one model may live on different threads, their computations take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hognose {

class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(std::string message) : message_(std::move(message)), ok_(false) {}
  bool ok() const { return ok_; }
  // "file or argument: what: got, want"; empty if ok.
  const std::string& message() const { return message_; }

 private:
  std::string message_;
  bool ok_ = true;
};

// A value or the reason why there is none. value() may be called only if ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

struct LoadOptions {
  size_t threads = 0;  // 0: one a physical core
  bool pin = false;  // each worker thread stays on a processor of its own; the caller's never does
  bool strict = false;  // tensors that no part of the model uses are an error
};

struct ModelInfo {
  std::string architecture;  // "mamba", "mamba2", "falcon_mamba"
  size_t layers = 0;
  size_t width = 0;       // D
  size_t logits = 0;      // V: rows of the output matrix, padding included
  size_t vocabulary = 0;  // ids from here on are padding
  size_t parameters = 0;
  size_t weight_bytes = 0;
};

class Model {
 public:
  // `path`: a folder with config.json, *.safetensors and, for text, tokenizer.json. Weights are
  // mapped, not copied; names, shapes, types and NaN are checked here.
  static Result<Model> Load(const std::string& path, const LoadOptions& options = {});

  ModelInfo info() const;
  bool has_tokenizer() const;
  // Token ids of UTF-8 text; `special` adds the tokens that the tokenizer puts around a text.
  Result<std::vector<int32_t>> Encode(std::string_view text, bool special = true) const;
  Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special = true) const;
  // Tokens that end a text.
  const std::vector<int32_t>& eos_ids() const;

 private:
  friend class Session;
  friend class Batch;
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

struct SessionOptions {
  size_t piece = 256;  // tokens of a prompt that are computed together, 1 to 4096
  bool exact = false;  // every product in f32; otherwise activations may be rounded to bf16
};

// Everything that a sequence remembers, as a value.
class State {
 public:
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  ~State();
  uint64_t position() const;

 private:
  friend class Session;
  struct Impl;
  explicit State(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Batch;

class Session {
 public:
  static Result<Session> Create(const Model& model, const SessionOptions& options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Feeds any number of tokens; afterwards logits() are those of the last one. An id outside the
  // embedding is an error, and nothing was fed then. Any split over calls gives the same bits, and
  // so does any number of threads.
  Status Prefill(std::span<const int32_t> ids);
  // One token. Allocates nothing.
  Status Step(int32_t id);
  // [V] after the last token; empty before the first.
  std::span<const float> logits() const;
  uint64_t position() const;
  void Reset();

  // A deep copy of the state, and back to it: for branches, rollback, reuse of a prefix.
  Result<State> Snapshot() const;
  Status Restore(const State& state);
  // The state file (docs/state_file.md): checksummed, and tied to the model's weights.
  Status Save(const std::string& path) const;
  Status Load(const std::string& path);

 private:
  friend class Batch;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Feeds several sessions of one model in one pass over the weights. They join and leave at any
// call; each gets, bit for bit, what it would get alone.
class Batch {
 public:
  // The next tokens of one session: one when it generates, any number when it reads a prompt.
  struct Input {
    Session* session = nullptr;
    std::span<const int32_t> ids;
  };

  // `rows`: tokens of all sessions together that one pass computes, 1 to 4096; longer inputs take
  // several passes. `exact`: as in SessionOptions; it counts for what this batch feeds.
  static Result<Batch> Create(const Model& model, size_t rows, bool exact = false);
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();

  // Feeds every input; afterwards each session's logits() are those of its last token. Errors (a
  // session of another model, the same one twice, an id outside the embedding) are found before
  // anything is fed.
  Status Feed(std::span<const Input> inputs);

 private:
  struct Impl;
  explicit Batch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hognose
