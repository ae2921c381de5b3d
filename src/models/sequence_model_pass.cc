#include "models/sequence_model_pass.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/regression_loss/regression_loss.h"

namespace hognose::models {

core::Result<SequenceModelPass> SequenceModelPass::Create(const SequenceModel& model,
                                                          const core::Exec& exec,
                                                          const PassOptions& o) {
  const size_t products =
      std::max(model.head.GradientScratch(o.rows), model.encoder.GradientScratch(o.rows));
  HOGNOSE_ASSIGN(Tape tape,
                 Tape::Create(model.backbone, exec,
                              {.rows = o.rows,
                               .checkpointing = o.checkpointing,
                               .exact = o.exact,
                               .half = o.half,
                               .other_cols = std::max(model.inputs(), model.width()),
                               .other_products = products,
                               .other_half = o.rows * std::max(model.inputs(), model.outputs()),
                               .dropout = o.dropout}));
  SequenceModelPass pass(std::move(tape));
  const auto carve = [&](core::Arena& arena) {
    pass.y_ = arena.NewMat<float>(o.rows, model.outputs());
    pass.du_ = arena.NewMat<float>(o.rows, model.width());
    pass.losses_ = arena.NewVec<double>(o.rows);
  };
  core::Arena measure;
  carve(measure);
  HOGNOSE_ASSIGN(pass.memory_, core::Arena::Allocate(measure.used()));
  carve(pass.memory_);
  return pass;
}

double SequenceModelPass::Forward(const SequenceModel& model, core::Mat<const float> x,
                                  const SequenceTargets& targets, std::span<const Piece> pieces,
                                  float scale, bool gradient, core::Mat<const float>* u) {
  nn::GradContext& g = tape_.context();
  const core::Mat<float> y = y_.Rows(0, x.rows);
  const core::Vec<double> losses = {losses_.data, x.rows};
  model.encoder.Forward(g, nn::Group::kEmbedding, x, tape_.input(x.rows));
  *u = tape_.Forward(model.backbone, x.rows, pieces);
  model.head.Forward(g, nn::Group::kHead, *u, y);
  if (model.config.classification) {
    HOGNOSE_DCHECK(targets.classes.size() == x.rows);
    kernels::CrossEntropy(g.ctx.exec, {.logits = y,
                                       .targets = targets.classes,
                                       .scale = scale,
                                       .losses = losses,
                                       .gradient = gradient});
  } else {
    kernels::RegressionLoss(
        g.ctx.exec, {.predictions = y,
                     .targets = targets.values,
                     .gradient = gradient ? y : core::Mat<float>(),
                     .kind = model.config.huber ? kernels::RegressionLossKind::kHuber
                                                : kernels::RegressionLossKind::kSquaredError,
                     .delta = static_cast<float>(model.config.huber_delta),
                     .scale = scale,
                     .losses = losses});
  }
  double sum = 0.0;
  for (size_t l = 0; l < x.rows; ++l) sum += losses[l];
  return sum;
}

double SequenceModelPass::Loss(const SequenceModel& model, core::Mat<const float> x,
                               const SequenceTargets& targets, std::span<const Piece> pieces) {
  tape_.set_noise(std::nullopt);
  core::Mat<const float> u;
  return Forward(model, x, targets, pieces, 1.0f, /*gradient=*/false, &u);
}

double SequenceModelPass::LossAndGradients(const SequenceModel& model, core::Mat<const float> x,
                                           const SequenceTargets& targets,
                                           std::span<const Piece> pieces, float scale,
                                           uint64_t noise) {
  tape_.set_noise(noise);
  core::Mat<const float> u;
  const double sum = Forward(model, x, targets, pieces, scale, /*gradient=*/true, &u);
  nn::GradContext& g = tape_.context();
  const core::Mat<float> dy = y_.Rows(0, x.rows), du = du_.Rows(0, x.rows);
  model.head.WeightGradient(g, u, dy);
  model.head.InputGradient(g, dy, du);
  const core::Mat<float> dh = tape_.Backward(model.backbone, du, pieces);
  model.encoder.WeightGradient(g, x, dh);
  return sum;
}

}  // namespace hognose::models
