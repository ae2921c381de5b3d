#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/fp_env.h"
#include "kernels/find_nonfinite/find_nonfinite.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/spectral_radius/spectral_radius.h"

namespace hognose::train {

void LossScale::Adjust(bool finite) {
  if (!finite) {
    scale = std::max(scale * 0.5, 1.0);
    good_steps = 0;
  } else if (++good_steps == kGrowthInterval) {
    scale = std::min(scale * 2.0, kLargest);
    good_steps = 0;
  }
}

Trainer::Trainer(core::Exec exec, Task& task, Parameters& parameters, const TrainerOptions& options)
    : exec_(exec),
      task_(task),
      parameters_(parameters),
      options_(options),
      norm_scratch_(kernels::SumOfSquaresScratch(parameters.gradients().size)) {
  if (options.precision == Precision::kF16) scale_.scale = LossScale::kFirst;
}

void Trainer::Restore(size_t step, size_t updates, const LossScale& scale) {
  step_ = step;
  updates_ = updates;
  scale_ = scale;
}

core::Status Trainer::Bind() {
  parameters_.Update(exec_);
  return task_.Bind(parameters_.tensors(), parameters_.gradient_map());
}

core::Status Trainer::NotFinite(std::string_view what, double got) const {
  core::Exec exec = exec_;
  std::string where = "no tensor by itself";
  for (const Parameter& p : parameters_.trained()) {
    core::TensorView gradient = p.view;
    gradient.data = parameters_.gradient(p).data;
    const bool value_bad = kernels::FindNonFinite(exec, p.view).has_value();
    if (!value_bad && !kernels::FindNonFinite(exec, gradient)) continue;
    where = fmt::format("the {} of {}", value_bad ? "values" : "gradients", p.name);
    break;
  }
  return core::Status::Failed(
      fmt::format("step {}: {}: got {}, want a finite number; not finite: {}", step_, what,
                  std::isnan(got) ? std::abs(got) : got, where));
}

core::Result<StepResult> Trainer::Step(const GradientSink& sink) {
  const core::FlushDenormals flush;
  const core::Vec<float> gradients = parameters_.gradients();
  std::fill_n(gradients.data, gradients.size, 0.0f);
  const auto targets = static_cast<double>(std::max(task_.Targets(step_), size_t{1}));
  StepResult result{.lr = options_.schedule.LearningRate(step_), .scale = scale_.scale};
  const auto scale = static_cast<float>(scale_.scale / targets);
  double sum = 0.0;
  for (size_t row = 0; row < task_.rows(); ++row) sum += task_.Row(step_, row, scale);
  result.loss = sum / targets;
  if (!std::isfinite(result.loss)) return NotFinite("loss", result.loss);
  const double squares =
      kernels::SumOfSquares(exec_, gradients, {norm_scratch_.data(), norm_scratch_.size()});
  result.grad_norm = std::sqrt(squares) / scale_.scale;
  const bool finite = std::isfinite(result.grad_norm);
  if (!finite && options_.precision != Precision::kF16) {
    return NotFinite("norm of the gradients", result.grad_norm);
  }
  if (sink) HOGNOSE_TRY(sink(static_cast<float>(1.0 / scale_.scale)));
  result.skipped = !finite;
  if (finite) {
    double factor = 1.0 / scale_.scale;
    const double clip = options_.optimizer.clip;
    if (clip > 0.0) factor *= std::min(1.0, clip / (result.grad_norm + 1e-6));
    Update(result.lr, factor);
    if (const core::Status status = Bind(); !status.ok()) {
      return core::Status::Failed(fmt::format("step {}: its update: {}", step_, status.message()));
    }
  }
  if (options_.precision == Precision::kF16) scale_.Adjust(finite);
  ++step_;
  return result;
}

void Trainer::Update(double lr, double gradient_scale) {
  const OptimizerOptions& o = options_.optimizer;
  ++updates_;
  const auto part = [](auto all, size_t begin, size_t end) {
    return all.size == 0 ? all : decltype(all){all.data + begin, end - begin};
  };
  const auto run = [&](size_t begin, size_t end, double decay) {
    if (begin == end) return;
    const core::Vec<float> p = part(parameters_.values(), begin, end);
    const core::Vec<const float> g = part(parameters_.gradients(), begin, end);
    const core::Vec<float> m = part(parameters_.m(), begin, end);
    if (o.kind == OptimizerKind::kSgd) {
      kernels::Sgd(exec_, {.p = p,
                           .buf = m,
                           .g = g,
                           .lr = lr,
                           .momentum = o.momentum,
                           .weight_decay = decay,
                           .gradient_scale = gradient_scale});
      return;
    }
    kernels::AdamW(exec_, {.p = p,
                           .m = m,
                           .v = part(parameters_.v(), begin, end),
                           .g = g,
                           .lr = lr,
                           .beta1 = o.beta1,
                           .beta2 = o.beta2,
                           .eps = o.eps,
                           .weight_decay = decay,
                           .gradient_scale = gradient_scale,
                           .step = updates_});
  };
  run(0, parameters_.decayed(), o.weight_decay);
  run(parameters_.decayed(), parameters_.values().size, 0.0);
  if (!std::isfinite(options_.min_a_log)) return;
  for (const Parameter& p : parameters_.trained()) {
    if (!p.name.ends_with("A_log")) continue;
    kernels::ProjectALog({parameters_.values().data + p.offset, p.view.elements()},
                         options_.min_a_log);
  }
}

}  // namespace hognose::train
