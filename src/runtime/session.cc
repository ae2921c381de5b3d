#include "runtime/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fp_env.h"

namespace hognose::runtime {
namespace {

// Rows of logits that Score computes in one pass over the head.
constexpr size_t kScoreRows = 16;

}  // namespace

void SessionState::CopyFrom(const SessionState& other) {
  state.CopyFrom(other.state);
  position = other.position;
  logits = other.logits;
}

core::Result<Session> Session::Create(std::shared_ptr<const Model> model,
                                      const SessionOptions& options) {
  if (options.piece == 0) return core::Status::Usage("piece: got 0, want at least 1");
  const auto& lm = model->lm;
  const size_t piece = std::min(options.piece, size_t{4096});
  HOGNOSE_ASSIGN(auto workspace, lm.NewWorkspace(model->exec(), piece, options.exact));
  workspace.ctx.profile = options.profile;
  SessionState state;
  HOGNOSE_ASSIGN(state.state, nn::State::Create(lm.state_shapes()));
  state.logits.resize(lm.logits_size());
  return Session(std::move(model), std::move(workspace), std::move(state), piece);
}

Session::Session(std::shared_ptr<const Model> model, models::Workspace workspace,
                 SessionState state, size_t piece)
    : model_(std::move(model)),
      workspace_(std::move(workspace)),
      state_(std::move(state)),
      piece_(piece) {}

core::Status CheckIds(const Model& model, std::span<const int32_t> ids) {
  const size_t limit = model.lm.input_ids();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<size_t>(ids[i]) < limit) continue;
    return core::Status::Failed(
        fmt::format("token {}: got id {}, want 0 to {}", i, ids[i], limit - 1));
  }
  return {};
}

core::Status Session::Prefill(std::span<const int32_t> ids) {
  return Prefill(ids, [](size_t) { return true; });
}

core::Status Session::Prefill(std::span<const int32_t> ids, Progress progress) {
  HOGNOSE_TRY(CheckIds(*model_, ids));
  if (ids.empty()) return {};
  const std::lock_guard lock(model_->compute);
  const core::FlushDenormals flush;
  for (size_t begin = 0; begin < ids.size(); begin += piece_) {
    const size_t count = std::min(piece_, ids.size() - begin);
    const models::Part part = {count, &state_.state};
    model_->lm.Forward(workspace_, ids.subspan(begin, count), {&part, 1});
    state_.position += count;
    const bool last = begin + count == ids.size() || !progress(begin + count);
    if (!last) continue;
    const size_t v = state_.logits.size();
    model_->lm.Logits(workspace_, count - 1, {state_.logits.data(), 1, v, v});
    break;
  }
  return {};
}

core::Status Session::Score(std::span<const int32_t> ids, RowSink sink) {
  HOGNOSE_TRY(CheckIds(*model_, ids));
  const size_t v = state_.logits.size();
  std::vector<float> rows(kScoreRows * v);
  const std::lock_guard lock(model_->compute);
  const core::FlushDenormals flush;
  for (size_t begin = 0; begin < ids.size(); begin += piece_) {
    const size_t count = std::min(piece_, ids.size() - begin);
    const models::Part part = {count, &state_.state};
    model_->lm.Forward(workspace_, ids.subspan(begin, count), {&part, 1});
    state_.position += count;
    bool more = true;
    for (size_t row = 0; more && row < count; row += kScoreRows) {
      const core::Mat<float> out = {rows.data(), std::min(kScoreRows, count - row), v, v};
      model_->lm.Logits(workspace_, row, out);
      std::copy_n(out.Row(out.rows - 1), out.cols, state_.logits.data());
      for (size_t i = 0; more && i < out.rows; ++i) {
        more = sink(begin + row + i, {out.Row(i), out.cols});
      }
    }
    if (more) continue;
    // The state has seen the whole piece, so the logits must too.
    model_->lm.Logits(workspace_, count - 1, {state_.logits.data(), 1, v, v});
    break;
  }
  return {};
}

std::span<const float> Session::logits() const {
  if (state_.position == 0) return {};
  return state_.logits;
}

void Session::Reset() {
  state_.state.Clear();
  state_.position = 0;
  std::fill(state_.logits.begin(), state_.logits.end(), 0.0f);  // a state file holds them
}

core::Result<SessionState> Session::NewState() const {
  SessionState state;
  HOGNOSE_ASSIGN(state.state, nn::State::Create(model_->lm.state_shapes()));
  state.logits.resize(state_.logits.size());
  return state;
}

size_t Session::bytes() const {
  return workspace_.bytes() + state_.state.bytes() + state_.logits.size() * sizeof(float);
}

}  // namespace hognose::runtime
