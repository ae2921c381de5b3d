#include "train/language_task.h"

#include <algorithm>
#include <memory>

namespace hognose::train {

core::Result<std::unique_ptr<LanguageTask>> LanguageTask::Create(
    core::Exec exec, const core::Value& config, const std::string& where, const TokenData& data,
    const TokenData* evaluation, const LanguageTaskOptions& o) {
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
                           const LanguageTaskOptions& options)
    : exec_(exec),
      config_(config),
      where_(where),
      data_(data),
      evaluation_(evaluation),
      batches_(std::move(batches)),
      options_(options),
      window_(options.length + 1) {}

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
  HOGNOSE_ASSIGN(auto pass,
                 models::LanguageModelPass::Create(*model_, exec_,
                                                   {.rows = options_.length,
                                                    .checkpointing = options_.checkpointing,
                                                    .exact = options_.exact}));
  pass_.emplace(std::move(pass));
  return {};
}

size_t LanguageTask::Targets(size_t) { return rows() * options_.length; }

void LanguageTask::Fill(const TokenData& data, size_t begin, size_t length) {
  data.Copy(begin, std::span(window_).first(length + 1));
  pieces_.clear();
  const std::vector<size_t> starts = SegmentStarts(data, begin, length);
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : length;
    pieces_.push_back({.begin = starts[i], .count = end - starts[i]});
  }
}

double LanguageTask::Row(size_t step, size_t row, float scale) {
  Fill(data_, batches_.Begin(step, row), options_.length);
  const std::span<const int32_t> window(window_);
  return pass_->LossAndGradients(*model_, window.first(options_.length), window.subspan(1), pieces_,
                                 scale);
}

double LanguageTask::Evaluate() {
  double sum = 0.0;
  const size_t targets = evaluation_->size() - 1;
  for (size_t begin = 0; begin < targets; begin += options_.length) {
    const size_t length = std::min(options_.length, targets - begin);
    Fill(*evaluation_, begin, length);
    const std::span<const int32_t> window(window_);
    sum += pass_->Loss(*model_, window.first(length), window.subspan(1, length), pieces_);
  }
  return sum / static_cast<double>(targets);
}

}  // namespace hognose::train
