#include "train/language_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/cross_entropy/cross_entropy.h"

namespace hognose::train {
namespace {

// Ends of documents whose last token is one of [begin, begin + length): these have no target.
std::span<const size_t> EndsIn(const TokenData& data, size_t begin, size_t length) {
  const auto ends = data.document_ends();
  const auto first = std::upper_bound(ends.begin(), ends.end(), begin);
  return {first, std::upper_bound(first, ends.end(), begin + length)};
}

size_t CountTargets(const TokenData& data, size_t begin, size_t length) {
  return length - EndsIn(data, begin, length).size();
}

core::Status CheckTargets(const TokenData& data) {
  if (data.size() > 1 && CountTargets(data, 0, data.size() - 1) > 0) return {};
  return core::Status::Failed(
      fmt::format("{}: got {} tokens{}, want two of one document or more: a token and what follows",
                  data.path(), data.size(), data.size() > 1 ? ", each a document of its own" : ""));
}

}  // namespace

core::Result<std::unique_ptr<LanguageTask>> LanguageTask::Create(
    core::Exec exec, const core::Value& config, const std::string& where, const TokenData& data,
    const TokenData* evaluation, const TaskOptions& o) {
  HOGNOSE_TRY(CheckTargets(data));
  if (evaluation != nullptr) HOGNOSE_TRY(CheckTargets(*evaluation));
  HOGNOSE_ASSIGN(Batches batches, Batches::Create(data, {.order = o.order,
                                                         .batch = o.batch * o.accumulate,
                                                         .length = o.length,
                                                         .seed = o.seed,
                                                         .steps = o.steps}));
  return std::unique_ptr<LanguageTask>(
      new LanguageTask(exec, config, where, data, evaluation, std::move(batches), o));
}

LanguageTask::LanguageTask(core::Exec exec, const core::Value& config, const std::string& where,
                           const TokenData& data, const TokenData* evaluation, Batches batches,
                           const TaskOptions& options)
    : exec_(exec),
      config_(config),
      where_(where),
      data_(data),
      evaluation_(evaluation),
      batches_(std::move(batches)),
      options_(options),
      ids_(options.length + 1) {
  targets_.reserve(options.length);
}

core::Status LanguageTask::Bind(const core::TensorMap& tensors,
                                const models::GradientMap& gradients) {
  const models::Checkpoint checkpoint{.config = config_,
                                      .config_name = where_,
                                      .tensors = tensors,
                                      .weights_name = "weights",
                                      .gradients = &gradients,
                                      .adapter_scale = options_.adapter_scale};
  HOGNOSE_ASSIGN(model_, models::Build(checkpoint));
  if (pass_) return {};
  auto pass = models::LanguageModelPass::Create(*model_, exec_,
                                                {.rows = options_.length,
                                                 .checkpointing = options_.checkpointing,
                                                 .exact = options_.exact,
                                                 .half = options_.half,
                                                 .dropout = options_.dropout});
  if (!pass.ok()) {
    return core::Status::Failed(fmt::format("{}: {}", where_, pass.status().message()));
  }
  pass_.emplace(std::move(*pass));
  return {};
}

size_t LanguageTask::Targets(size_t step) {
  size_t count = 0;
  for (size_t row = 0; row < rows(); ++row) {
    count += CountTargets(data_, batches_.Begin(step, row), options_.length);
  }
  return count;
}

void LanguageTask::Fill(const TokenData& data, size_t begin, size_t length) {
  data.Copy(begin, std::span(ids_).first(length + 1));
  targets_.assign(ids_.begin() + 1, ids_.begin() + 1 + static_cast<ptrdiff_t>(length));
  for (const size_t end : EndsIn(data, begin, length)) {
    targets_[end - begin - 1] = kernels::kIgnored;
  }
  pieces_.clear();
  const std::vector<size_t> starts = SegmentStarts(data, begin, length);
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : length;
    pieces_.push_back({.begin = starts[i], .count = end - starts[i]});
  }
}

double LanguageTask::Row(size_t step, size_t row, float scale) {
  Fill(data_, batches_.Begin(step, row), options_.length);
  return pass_->LossAndGradients(*model_, ids(), targets_, pieces_, scale,
                                 options_.Noise(step, row));
}

double LanguageTask::Evaluate() {
  double sum = 0.0;
  const size_t last = evaluation_->size() - 1;
  for (size_t begin = 0; begin < last; begin += options_.length) {
    Fill(*evaluation_, begin, std::min(options_.length, last - begin));
    sum += pass_->Loss(*model_, ids(), targets_, pieces_);
  }
  return sum / static_cast<double>(CountTargets(*evaluation_, 0, last));
}

}  // namespace hognose::train
