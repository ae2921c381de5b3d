#include "runtime/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fp_env.h"

namespace hognose::runtime {
namespace {

// Rows of logits that share one pass over the head.
constexpr size_t kLogitRows = 16;
// Sessions of one call.
constexpr size_t kMaxInputs = 4096;

}  // namespace

core::Result<Batch> Batch::Create(std::shared_ptr<const Model> model, size_t rows, bool exact) {
  if (rows == 0 || rows > kMaxInputs) {
    return core::Status::Usage(fmt::format("rows: got {}, want 1 to {}", rows, kMaxInputs));
  }
  HOGNOSE_ASSIGN(auto workspace, model->lm.NewWorkspace(model->exec(), rows, exact));
  return Batch(std::move(model), std::move(workspace), rows);
}

Batch::Batch(std::shared_ptr<const Model> model, models::Workspace workspace, size_t rows)
    : model_(std::move(model)),
      workspace_(std::move(workspace)),
      rows_(rows),
      logits_(std::min(rows, kLogitRows) * model_->lm.logits_size()) {
  ids_.reserve(rows);
  parts_.reserve(rows);
  inputs_.reserve(rows);
  done_.reserve(kMaxInputs);
}

core::Status Batch::Check(std::span<const Input> inputs) const {
  if (inputs.size() > kMaxInputs) {
    return core::Status::Usage(
        fmt::format("inputs: got {}, want at most {}", inputs.size(), kMaxInputs));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto fault = [i](std::string_view what) {
      return core::Status::Failed(fmt::format("input {}: {}", i, what));
    };
    if (inputs[i].session->model_ != model_) return fault("got a session of another model");
    for (size_t j = 0; j < i; ++j) {
      if (inputs[j].session == inputs[i].session) return fault("got a session twice");
    }
    if (const auto status = CheckIds(*model_, inputs[i].ids); !status.ok()) {
      return fault(status.message());
    }
  }
  return {};
}

bool Batch::Collect(std::span<const Input> inputs) {
  ids_.clear();
  parts_.clear();
  inputs_.clear();
  for (size_t i = 0; i < inputs.size() && ids_.size() < rows_; ++i) {
    const auto left = inputs[i].ids.subspan(done_[i]);
    const size_t count = std::min(left.size(), rows_ - ids_.size());
    if (count == 0) continue;
    ids_.insert(ids_.end(), left.begin(), left.begin() + static_cast<ptrdiff_t>(count));
    parts_.push_back({count, &inputs[i].session->state_.state});
    inputs_.push_back(i);
  }
  return !ids_.empty();
}

// Positions, and the logits of the sessions whose last token was in this pass.
void Batch::Finish(std::span<const Input> inputs) {
  const size_t v = model_->lm.logits_size();
  size_t row = 0, finished = 0;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const size_t i = inputs_[p];
    row += parts_[p].count;
    done_[i] += parts_[p].count;
    inputs[i].session->state_.position += parts_[p].count;
    if (done_[i] < inputs[i].ids.size()) continue;
    // The residual stream is not needed any more: the last rows move to the front, one beside the
    // other.
    const float* from = workspace_.h.Row(row - 1);
    std::copy_n(from, workspace_.h.cols, workspace_.h.Row(finished));
    inputs_[finished++] = i;
  }
  for (size_t begin = 0; begin < finished; begin += kLogitRows) {
    const size_t count = std::min(kLogitRows, finished - begin);
    model_->lm.Logits(workspace_, begin, {logits_.data(), count, v, v});
    for (size_t r = 0; r < count; ++r) {
      std::copy_n(logits_.data() + r * v, v,
                  inputs[inputs_[begin + r]].session->state_.logits.data());
    }
  }
}

core::Status Batch::Feed(std::span<const Input> inputs) {
  HOGNOSE_TRY(Check(inputs));
  const std::lock_guard lock(model_->compute);
  const core::FlushDenormals flush;
  done_.assign(inputs.size(), 0);
  while (Collect(inputs)) {
    model_->lm.Forward(workspace_, ids_, parts_);
    Finish(inputs);
  }
  return {};
}

}  // namespace hognose::runtime
