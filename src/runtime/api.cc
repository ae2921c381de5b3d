// include/hognose/hognose.hpp over runtime.
#include "hognose/hognose.hpp"
#include "runtime/batch.h"
#include "runtime/session.h"
#include "runtime/state_file.h"
#include "runtime/text_stream.h"

namespace hognose {
namespace {

Status Public(const core::Status& status) {
  return status.ok() ? Status() : Status(status.message());
}

}  // namespace

struct Model::Impl {
  std::shared_ptr<const runtime::Model> model;
};

struct State::Impl {
  std::shared_ptr<const runtime::Model> model;
  runtime::SessionState state;
};

struct Session::Impl {
  std::shared_ptr<const runtime::Model> model;
  runtime::Session session;
};

Result<Model> Model::Load(const std::string& path, const LoadOptions& options) {
  auto model = runtime::Model::Load(
      path, {.threads = options.threads, .pin = options.pin, .strict = options.strict});
  if (!model.ok()) return Public(model.status());
  return Model(std::make_shared<const Impl>(Impl{std::move(*model)}));
}

ModelInfo Model::info() const {
  const auto& model = *impl_->model;
  return {.architecture = model.lm.architecture,
          .layers = model.lm.backbone.blocks.size(),
          .width = model.lm.width(),
          .logits = model.lm.logits_size(),
          .vocabulary = model.lm.vocab,
          .parameters = model.parameters(),
          .weight_bytes = model.weight_bytes()};
}

bool Model::has_tokenizer() const { return impl_->model->tokenizer.has_value(); }

Result<std::vector<int32_t>> Model::Encode(std::string_view text, bool special) const {
  if (!has_tokenizer()) return Status(impl_->model->path + "/tokenizer.json: missing");
  auto ids = impl_->model->tokenizer->Encode(text, special);
  if (!ids.ok()) return Public(ids.status());
  return std::move(*ids);
}

Result<std::string> Model::Decode(std::span<const int32_t> ids, bool skip_special) const {
  if (!has_tokenizer()) return Status(impl_->model->path + "/tokenizer.json: missing");
  auto text = impl_->model->tokenizer->Decode(ids, skip_special);
  if (!text.ok()) return Public(text.status());
  return std::move(*text);
}

const std::vector<int32_t>& Model::eos_ids() const { return impl_->model->eos_ids; }

State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;
State::~State() = default;
uint64_t State::position() const { return impl_->state.position; }

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::Create(const Model& model, const SessionOptions& options) {
  auto session = runtime::Session::Create(model.impl_->model,
                                          {.piece = options.piece, .exact = options.exact});
  if (!session.ok()) return Public(session.status());
  return Session(std::make_unique<Impl>(Impl{model.impl_->model, std::move(*session)}));
}

Status Session::Prefill(std::span<const int32_t> ids) {
  return Public(impl_->session.Prefill(ids));
}
Status Session::Step(int32_t id) { return Public(impl_->session.Step(id)); }
std::span<const float> Session::logits() const { return impl_->session.logits(); }
uint64_t Session::position() const { return impl_->session.position(); }
void Session::Reset() { impl_->session.Reset(); }

Result<State> Session::Snapshot() const {
  auto copy = impl_->session.NewState();
  if (!copy.ok()) return Public(copy.status());
  copy->CopyFrom(impl_->session.state());
  return State(std::make_unique<State::Impl>(State::Impl{impl_->model, std::move(*copy)}));
}

Status Session::Restore(const State& state) {
  if (state.impl_->model != impl_->model) return Status("state: got one of another model");
  impl_->session.Restore(state.impl_->state);
  return {};
}

Status Session::Save(const std::string& path) const {
  return Public(runtime::WriteState(path, impl_->session, {}, {}));
}

Status Session::Load(const std::string& path) {
  auto saved = runtime::ReadState(path, impl_->session);
  if (!saved.ok()) return Public(saved.status());
  impl_->session.Restore(saved->session);
  return {};
}

struct Batch::Impl {
  runtime::Batch batch;
  std::vector<runtime::Batch::Input> inputs;
};

Batch::Batch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

Result<Batch> Batch::Create(const Model& model, size_t rows, bool exact) {
  auto batch = runtime::Batch::Create(model.impl_->model, rows, exact);
  if (!batch.ok()) return Public(batch.status());
  return Batch(std::make_unique<Impl>(Impl{std::move(*batch), {}}));
}

Status Batch::Feed(std::span<const Input> inputs) {
  impl_->inputs.clear();
  for (const Input& input : inputs) {
    if (input.session == nullptr) return Status("session: got none");
    impl_->inputs.push_back({&input.session->impl_->session, input.ids});
  }
  return Public(impl_->batch.Feed(impl_->inputs));
}

}  // namespace hognose
