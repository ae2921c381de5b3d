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
      options_(options) {}

core::Status LanguageTask::Bind(const core::TensorMap& tensors,
                                std::span<const models::GradientMap> gradients) {
  lanes_.resize(gradients.size());
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const models::Checkpoint checkpoint{.config = config_,
                                        .config_name = where_,
                                        .tensors = tensors,
                                        .weights_name = "weights",
                                        .gradients = &gradients[i],
                                        .adapter_scale = options_.adapter_scale};
    HOGNOSE_ASSIGN(lane.model, models::Build(checkpoint));
    if (lane.pass) continue;
    auto pass = models::LanguageModelPass::Create(*lane.model, exec_, options_.pass_options());
    if (!pass.ok()) {
      return core::Status::Failed(fmt::format("{}: {}", where_, pass.status().message()));
    }
    lane.pass.emplace(std::move(*pass));
    lane.tokens.resize(options_.length + 1);
    lane.targets.reserve(options_.length);
  }
  return {};
}

size_t LanguageTask::Targets(size_t step) {
  size_t count = 0;
  for (size_t row = 0; row < rows(); ++row) {
    count += CountTargets(data_, batches_.Begin(step, row), options_.length);
  }
  return count;
}

void LanguageTask::Lane::Fill(const TokenData& data, size_t begin, size_t length) {
  data.Copy(begin, std::span(tokens).first(length + 1));
  targets.assign(tokens.begin() + 1, tokens.begin() + 1 + static_cast<ptrdiff_t>(length));
  for (const size_t end : EndsIn(data, begin, length)) {
    targets[end - begin - 1] = kernels::kIgnored;
  }
  pieces.clear();
  const std::vector<size_t> starts = SegmentStarts(data, begin, length);
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : length;
    pieces.push_back({.begin = starts[i], .count = end - starts[i]});
  }
}

double LanguageTask::Row(size_t step, size_t row, float scale, size_t lane) {
  Lane& l = lanes_[lane];
  l.Fill(data_, batches_.Begin(step, row), options_.length);
  return l.pass->LossAndGradients(*l.model, l.ids(), l.targets, l.pieces, scale,
                                  options_.Noise(step, row));
}

double LanguageTask::Evaluate() {
  Lane& lane = lanes_.front();
  double sum = 0.0;
  const size_t last = evaluation_->size() - 1;
  for (size_t begin = 0; begin < last; begin += options_.length) {
    lane.Fill(*evaluation_, begin, std::min(options_.length, last - begin));
    sum += lane.pass->Loss(*lane.model, lane.ids(), lane.targets, lane.pieces);
  }
  return sum / static_cast<double>(CountTargets(*evaluation_, 0, last));
}

}  // namespace hognose::train
