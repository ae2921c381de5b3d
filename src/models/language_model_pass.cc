#include "models/language_model_pass.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy.h"

namespace hognose::models {
namespace {

// Rows of logits at once: 16 MiB of them, but enough rows to share a pass over the head.
size_t LogitRows(size_t rows, size_t vocabulary) {
  constexpr size_t kFloats = size_t{4} << 20, kLeast = 32;
  return std::min(rows, std::max(kFloats / vocabulary, kLeast));
}

}  // namespace

core::Result<LanguageModelPass> LanguageModelPass::Create(const LanguageModel& model,
                                                          const core::Exec& exec,
                                                          const PassOptions& o) {
  HOGNOSE_ASSIGN(Tape tape, Tape::Create(model.backbone, exec,
                                         {.rows = o.rows,
                                          .checkpointing = o.checkpointing,
                                          .exact = o.exact,
                                          .half = o.half,
                                          .other_cols = model.width(),
                                          .other_products = model.head.GradientScratch(o.rows),
                                          .other_half = LogitRows(o.rows, model.logits_size()) *
                                                        model.logits_size(),
                                          .dropout = o.dropout}));
  LanguageModelPass pass(std::move(tape));
  const size_t block = LogitRows(o.rows, model.logits_size());
  const auto carve = [&](core::Arena& arena) {
    pass.logits_ = arena.NewMat<float>(block, model.logits_size());
    pass.du_ = arena.NewMat<float>(o.rows, model.width());
    pass.losses_ = arena.NewVec<double>(block);
  };
  core::Arena measure;
  carve(measure);
  HOGNOSE_ASSIGN(pass.memory_, core::Arena::Allocate(measure.used()));
  carve(pass.memory_);
  return pass;
}

core::Mat<const float> LanguageModelPass::Forward(const LanguageModel& model,
                                                  std::span<const int32_t> ids,
                                                  std::span<const Piece> pieces) {
  model.Embed(tape_.context().ctx, ids, tape_.input(ids.size()));
  return tape_.Forward(model.backbone, ids.size(), pieces);
}

// Rows [begin, begin + block) of the head: their loss and, with `gradient`, the head's gradients
// and du_.
double LanguageModelPass::HeadBlock(const LanguageModel& model, core::Mat<const float> u,
                                    size_t begin, std::span<const int32_t> targets, float scale,
                                    bool gradient) {
  const size_t count = std::min(logits_.rows, u.rows - begin);
  nn::GradContext& g = tape_.context();
  const core::Mat<float> logits = logits_.Rows(0, count);
  const core::Mat<const float> rows = u.Rows(begin, count);
  model.head.Forward(g, nn::Group::kHead, rows, logits);
  kernels::CrossEntropy(g.ctx.exec, {.logits = logits,
                                     .targets = targets.subspan(begin, count),
                                     .scale = scale,
                                     .losses = {losses_.data, count},
                                     .gradient = gradient});
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += losses_[i];
  if (!gradient) return sum;
  model.head.WeightGradient(g, rows, logits);
  model.head.InputGradient(g, logits, du_.Rows(begin, count));
  return sum;
}

double LanguageModelPass::Loss(const LanguageModel& model, std::span<const int32_t> ids,
                               std::span<const int32_t> targets, std::span<const Piece> pieces) {
  tape_.set_noise(std::nullopt);
  const core::Mat<const float> u = Forward(model, ids, pieces);
  double sum = 0.0;
  for (size_t begin = 0; begin < u.rows; begin += logits_.rows) {
    sum += HeadBlock(model, u, begin, targets, 1.0f, /*gradient=*/false);
  }
  return sum;
}

double LanguageModelPass::LossAndGradients(const LanguageModel& model, std::span<const int32_t> ids,
                                           std::span<const int32_t> targets,
                                           std::span<const Piece> pieces, float scale,
                                           uint64_t noise) {
  tape_.set_noise(noise);
  const core::Mat<const float> u = Forward(model, ids, pieces);
  double sum = 0.0;
  for (size_t begin = 0; begin < u.rows; begin += logits_.rows) {
    sum += HeadBlock(model, u, begin, targets, scale, /*gradient=*/true);
  }
  const core::Mat<float> dh = tape_.Backward(model.backbone, du_.Rows(0, ids.size()), pieces);
  if (model.dembedding.size == 0) return sum;
  const size_t width = model.width();
  for (size_t l = 0; l < ids.size(); ++l) {
    float* row = model.dembedding.data + static_cast<size_t>(ids[l]) * width;
    for (size_t i = 0; i < width; ++i) row[i] += dh.Row(l)[i];
  }
  return sum;
}

}  // namespace hognose::models
