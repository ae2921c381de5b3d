// Trainer: steps of gradient descent over a Task: scaled loss, clipping, the optimiser, the bound
// on the spectral radius, and the state that a run is resumed from.
//
// The rows of a step are dealt to lanes in turn. A lane goes through its rows one after the other
// and adds their gradients to a buffer of its own; then the lanes' buffers are added in their
// order. With as many lanes as threads each lane is the work of one thread; with fewer the lanes
// follow each other and all threads share each row.
//
// Everything that a step depends on is a function of the step, the seed and the state here: a
// resumed run has the same bits as one that never stopped, for any thread count.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/exec.h"
#include "core/status.h"
#include "train/parameters.h"
#include "train/schedule.h"
#include "train/task.h"

namespace hognose::train {

enum class OptimizerKind : uint8_t { kAdamW, kSgd };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double momentum = 0.0;  // SGD's
  double weight_decay = 0.0;
  double clip = 0.0;  // of the gradients' norm; 0: none
};

// The scale of the loss in F16 (math.md 4.2): halved when gradients overflow, doubled after
// kGrowthInterval steps without. In other precisions always 1.
struct LossScale {
  static constexpr double kFirst = 65536.0, kLargest = 16777216.0;
  static constexpr uint64_t kGrowthInterval = 2000;
  double scale = 1.0;
  uint64_t good_steps = 0;

  // After a step with finite gradients, or one that was skipped for want of them.
  void Adjust(bool finite);
};

struct TrainerOptions {
  OptimizerOptions optimizer = {};
  Schedule schedule = {};
  Precision precision = Precision::kF32;
  // The least A_log that keeps exp(dt A) below the bound wherever dt is at its floor
  // (kernels::LeastALog); -infinity: no bound.
  double min_a_log = -std::numeric_limits<double>::infinity();
};

// How many lanes a step has: a function of sizes alone, so that the bits are the same for any
// number of threads. Lanes beside the first may take a quarter of the memory that the run has
// without them, or 32 MiB where that is more; there are 16 at most.
size_t LaneCount(size_t rows, size_t lane_bytes, size_t other_bytes);

struct StepResult {
  double loss = 0.0;
  double grad_norm = 0.0;  // before clipping, unscaled
  double lr = 0.0;
  double scale = 1.0;    // that this step was done with
  bool skipped = false;  // its gradients overflowed in F16
};

class Trainer {
 public:
  // Called with the gradients of a step before they are clipped; `factor` times them is unscaled.
  using GradientSink = std::function<core::Status(float factor)>;

  Trainer(core::Exec exec, Task& task, Parameters& parameters, const TrainerOptions& options);

  // Binds the task to the parameters as they are: before the first step and after a resume.
  core::Status Bind();
  // Step `step()`, which then is one more. Fails on a loss that isn't finite, naming the step and
  // the first tensor whose values or gradients aren't, and changes nothing then; and, naming the
  // step, on an update that leads to values that no model can have.
  core::Result<StepResult> Step(const GradientSink& gradients = {});

  size_t step() const { return step_; }
  // Updates so far: steps that weren't skipped.
  size_t updates() const { return updates_; }
  const LossScale& loss_scale() const { return scale_; }
  void Restore(size_t step, size_t updates, const LossScale& scale);

 private:
  core::Status BindLanes();
  core::Status AddLanes();
  double ForwardAndBackward(float scale);
  core::Status NotFinite(std::string_view what, double got) const;
  void Update(double lr, double gradient_scale);

  core::Exec exec_;
  Task& task_;
  Parameters& parameters_;
  TrainerOptions options_;
  LossScale scale_;
  size_t step_ = 0, updates_ = 0;
  std::vector<double> norm_scratch_;
  std::vector<core::Vec<float>> lanes_;  // their gradients; the first are the parameters' own
  std::vector<core::Arena> lane_memory_;
  std::vector<double> losses_;  // of the rows
};

}  // namespace hognose::train
