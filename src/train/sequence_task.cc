#include "train/sequence_task.h"

#include <algorithm>
#include <utility>

#include "core/fp_env.h"

namespace hognose::train {

core::Result<std::unique_ptr<SequenceTask>> SequenceTask::Create(core::Exec exec,
                                                                 const core::Value& config,
                                                                 const std::string& where,
                                                                 const SequenceData& data,
                                                                 const TaskOptions& o) {
  HOGNOSE_ASSIGN(Batches batches, Batches::Create({.count = data.split().training,
                                                   .ahead = 0,
                                                   .unit = "rows to train on",
                                                   .path = data.path()},
                                                  {.order = o.order,
                                                   .batch = o.batch * o.accumulate,
                                                   .length = o.length,
                                                   .seed = o.seed,
                                                   .steps = o.steps}));
  return std::unique_ptr<SequenceTask>(
      new SequenceTask(exec, config, where, data, std::move(batches), o));
}

core::Status SequenceTask::Bind(const core::TensorMap& tensors,
                                std::span<const models::GradientMap> gradients) {
  lanes_.resize(gradients.size());
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const models::Checkpoint checkpoint{.config = config_,
                                        .config_name = where_,
                                        .tensors = tensors,
                                        .weights_name = "weights",
                                        .gradients = &gradients[i]};
    HOGNOSE_ASSIGN(lane.model, models::BuildSequence(checkpoint));
    if (lane.pass) continue;
    HOGNOSE_ASSIGN(auto pass,
                   models::SequenceModelPass::Create(*lane.model, exec_, options_.pass_options()));
    lane.pass.emplace(std::move(pass));
    if (i != 0) continue;
    HOGNOSE_ASSIGN(before_, nn::State::Create(lane.model->state_shapes()));
    HOGNOSE_ASSIGN(after_, nn::State::Create(lane.model->state_shapes()));
  }
  return {};
}

size_t SequenceTask::Targets(size_t) { return rows() * options_.length * data_.targets_per_row(); }

double SequenceTask::Row(size_t step, size_t row, float scale, size_t lane) {
  const size_t begin = batches_.Begin(step, row), length = options_.length;
  const models::Piece whole = {.begin = 0, .count = length};
  Lane& l = lanes_[lane];
  return l.pass->LossAndGradients(*l.model, data_.Features(begin, length),
                                  data_.Targets(begin, length), {&whole, 1}, scale,
                                  options_.Noise(step, row));
}

double SequenceTask::Evaluate() {
  const core::FlushDenormals flush;
  const Split& split = data_.split();
  Lane& lane = lanes_.front();
  double sum = 0.0;
  before_.Clear();
  for (size_t done = 0; done < split.validation; done += options_.length) {
    const size_t begin = split.training + done,
                 count = std::min(options_.length, split.validation - done);
    const models::Piece piece = {.begin = 0, .count = count, .initial = &before_, .last = &after_};
    sum += lane.pass->Loss(*lane.model, data_.Features(begin, count), data_.Targets(begin, count),
                           {&piece, 1});
    std::swap(before_, after_);
  }
  return sum / static_cast<double>(split.validation * data_.targets_per_row());
}

}  // namespace hognose::train
