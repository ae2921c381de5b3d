#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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

size_t LaneCount(size_t rows, size_t lane_bytes, size_t other_bytes) {
  // Each lane's model is bound anew after every step, which small models would feel.
  constexpr size_t kAlways = size_t{32} << 20, kShare = 4, kMost = 16;
  const size_t room = std::max(kAlways, (other_bytes + lane_bytes) / kShare);
  return std::min({std::max(rows, size_t{1}), 1 + room / std::max(lane_bytes, size_t{1}), kMost});
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
  if (!lanes_.empty()) return BindLanes();
  lanes_ = {parameters_.gradients()};
  HOGNOSE_TRY(BindLanes());
  HOGNOSE_TRY(AddLanes());
  return lanes_.size() == 1 ? core::Status() : BindLanes();
}

core::Status Trainer::BindLanes() {
  std::vector<models::GradientMap> maps;
  for (const core::Vec<float> lane : lanes_) maps.push_back(parameters_.gradient_map(lane));
  return task_.Bind(parameters_.tensors(), maps);
}

core::Status Trainer::AddLanes() {
  const size_t floats = lanes_[0].size;
  const size_t count = LaneCount(task_.rows(), task_.lane_bytes() + floats * sizeof(float),
                                 parameters_.bytes() - floats * sizeof(float));
  core::Arena measure;
  measure.NewVec<float>(floats);
  while (lanes_.size() < count) {
    HOGNOSE_ASSIGN(core::Arena arena, core::Arena::Allocate(measure.used()));
    lanes_.push_back(arena.NewVec<float>(floats));
    lane_memory_.push_back(std::move(arena));
  }
  losses_.resize(task_.rows());
  return {};
}

double Trainer::ForwardAndBackward(float scale) {
  const auto run = [&](size_t lane) {
    const core::FlushDenormals flush;
    std::fill_n(lanes_[lane].data, lanes_[lane].size, 0.0f);
    for (size_t row = lane; row < task_.rows(); row += lanes_.size()) {
      losses_[row] = task_.Row(step_, row, scale, lane);
    }
  };
  if (exec_.pool.threads() <= lanes_.size()) {
    exec_.pool.Run(lanes_.size(), run);
  } else {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) run(lane);
  }
  constexpr size_t kPerTask = size_t{1} << 16;
  const size_t size = lanes_[0].size;
  exec_.pool.Run((size + kPerTask - 1) / kPerTask, [&](size_t task) {
    const size_t begin = task * kPerTask, end = std::min(size, begin + kPerTask);
    float* sum = lanes_[0].data;
    for (size_t lane = 1; lane < lanes_.size(); ++lane) {
      const float* part = lanes_[lane].data;
      for (size_t i = begin; i < end; ++i) sum[i] += part[i];
    }
  });
  return std::accumulate(losses_.begin(), losses_.end(), 0.0);
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
  const auto targets = static_cast<double>(std::max(task_.Targets(step_), size_t{1}));
  StepResult result{.lr = options_.schedule.LearningRate(step_), .scale = scale_.scale};
  const auto scale = static_cast<float>(scale_.scale / targets);
  result.loss = ForwardAndBackward(scale) / targets;
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
