#include "cli/train_run.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/output_folder.h"
#include "io/file.h"
#include "io/json.h"
#include "train/checkpoint.h"
#include "train/loss_curve.h"
#include "train/train_log.h"
#include "train/trainer.h"

namespace hognose::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

uint64_t PeakMemory() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::string Duration(double seconds) {
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// Whether the folder of `path` is `folder`, which needn't exist.
bool LiesIn(const std::string& folder, const std::string& path) {
  std::error_code error;
  const fs::path a = fs::weakly_canonical(folder + "/", error);
  const fs::path b = fs::weakly_canonical(fs::path(path).parent_path() / "", error);
  return !error && a == b;
}

// What a run reads: --force must not replace it.
std::vector<std::string> Sources(const TrainFlags& f) {
  return {f.init, f.data, f.evaluation, f.model_config, f.tokenizer, f.config};
}

// What a run has written and seen so far.
class Session {
 public:
  explicit Session(const TrainRun& run)
      : run_(run),
        settings_(SettingsOf(run.flags)),
        trainer_(run.exec, run.task, run.parameters,
                 {.optimizer = OptimizerOf(run.flags),
                  .schedule = ScheduleOf(run.flags),
                  .precision = PrecisionOf(run.flags),
                  .min_a_log = run.min_a_log}) {
    core::Value::Object& all = *settings_.AsObject();
    all.insert(all.end(), run.data_settings.begin(), run.data_settings.end());
  }

  core::Status Begin();
  core::Status Train();
  core::Status Finish();

 private:
  std::string File(std::string_view name) const {
    return (fs::path(run_.flags.out) / name).string();
  }
  const char* WeightsName() const {
    return run_.lora ? "adapter_model.safetensors" : "model.safetensors";
  }
  core::Status SaveWeights(const std::string& path) const;
  core::Status WriteFolder(const OutputFolder& folder);
  core::Status OneStep(Progress& bar);
  void TellParameters() const;
  core::Status Save();
  core::Status Evaluate(Progress& bar);

  const TrainRun& run_;
  core::Value settings_;
  train::Trainer trainer_;
  std::optional<train::TrainLog> log_;
  std::vector<train::CurvePoint> curve_, evaluations_;
  size_t first_ = 0;  // step at which this process began
  size_t saved_ = 0;  // step of the checkpoint on disk
  size_t skipped_ = 0;
  std::optional<double> last_loss_;  // of this process's last step
  Clock::time_point start_ = Clock::now();
};

core::Status Session::SaveWeights(const std::string& path) const {
  if (!run_.lora) return train::SaveModel(path, run_.parameters);
  core::TensorMap adapters;  // also those that --freeze holds
  for (const auto& [name, tensor] : run_.parameters.value_map()) {
    if (name.ends_with(io::kLoraA) || name.ends_with(io::kLoraB)) adapters.emplace(name, tensor);
  }
  return io::WriteAdapter(path, adapters);
}

core::Status Session::WriteFolder(const OutputFolder& folder) {
  if (run_.lora) {
    HOGNOSE_TRY(io::WriteFile(folder / "adapter_config.json", io::AdapterConfig(*run_.lora)));
  } else {
    HOGNOSE_TRY(io::WriteFile(folder / "config.json", io::ToJson(run_.config, 2) + "\n"));
    for (const auto& [name, bytes] : run_.files) {
      HOGNOSE_TRY(io::WriteFile(folder / name.c_str(), bytes));
    }
  }
  HOGNOSE_TRY(SaveWeights(folder / WeightsName()));
  return train::SaveState(folder / std::string(train::kStateFile).c_str(), run_.parameters,
                          trainer_, settings_);
}

// A new run's folder appears whole, with a checkpoint before the first step: from then on there is
// always one.
core::Status Session::Begin() {
  const TrainFlags& f = run_.flags;
  for (const std::string& path : {f.log, f.gradients}) {
    // What lies in the folder that this run makes can't be there yet.
    if (!path.empty() && (f.resume || !LiesIn(f.out, path))) HOGNOSE_TRY(CheckWritable(path));
  }
  if (f.resume) {
    HOGNOSE_TRY(train::LoadState(File(train::kStateFile), run_.parameters, trainer_, settings_));
    first_ = saved_ = trainer_.step();
  }
  HOGNOSE_TRY(trainer_.Bind());
  if (!f.resume) {
    HOGNOSE_ASSIGN(auto folder, OutputFolder::Create(f.out, Sources(f), f.force));
    HOGNOSE_TRY(folder.Named(WriteFolder(folder)));
    HOGNOSE_TRY(folder.Commit());
  }
  if (f.log.empty()) return {};
  std::vector<train::LogEntry> kept;
  auto log =
      f.resume ? train::TrainLog::Resume(f.log, first_, &kept) : train::TrainLog::Create(f.log);
  HOGNOSE_TRY(log.status());
  log_.emplace(std::move(*log));
  for (const auto& entry : kept) curve_.push_back({entry.step, entry.loss});
  return {};
}

// The state first: it alone is what a run is resumed from.
core::Status Session::Save() {
  HOGNOSE_TRY(train::SaveState(File(train::kStateFile), run_.parameters, trainer_, settings_));
  HOGNOSE_TRY(SaveWeights(File(WeightsName())));
  HOGNOSE_TRY(io::WriteFile(File("loss.svg"), train::DrawLossCurve(curve_, evaluations_)));
  saved_ = trainer_.step();
  return {};
}

core::Status Session::Evaluate(Progress& bar) {
  const double loss = run_.task.Evaluate();
  bar.Clear();
  evaluations_.push_back({trainer_.step(), loss});
  Note(fmt::format("step {}: held-out loss {:.4f}", trainer_.step(), loss));
  return {};
}

// After the first step: what can't begin fails with one line, its own.
void Session::TellParameters() const {
  const train::Parameters& p = run_.parameters;
  Note(fmt::format(
      "{} parameters, {} trained ({:.2f} %), {} MiB for them", p.elements(), p.trained_elements(),
      100.0 * static_cast<double>(p.trained_elements()) / static_cast<double>(p.elements()),
      p.bytes() >> 20));
}

core::Status Session::OneStep(Progress& bar) {
  const TrainFlags& f = run_.flags;
  const size_t step = trainer_.step();
  const auto begin = Clock::now();
  const bool write = step == 0 && !f.gradients.empty();
  const auto sink = [&](float factor) {
    return train::SaveGradients(f.gradients, run_.parameters, factor);
  };
  HOGNOSE_ASSIGN(
      const train::StepResult result,
      trainer_.Step(write ? train::Trainer::GradientSink(sink) : train::Trainer::GradientSink()));
  if (step == first_) TellParameters();
  last_loss_ = result.loss;
  skipped_ += result.skipped;
  const double seconds = std::max(SecondsSince(begin), 1e-9);
  const train::LogEntry entry{
      .step = step,
      .loss = result.loss,
      .grad_norm = result.grad_norm,
      .lr = result.lr,
      .tokens_per_second = static_cast<double>(run_.task.tokens_per_step()) / seconds,
      .memory_bytes = PeakMemory(),
      .scale = result.scale};
  curve_.push_back({step, result.loss});
  if (log_) HOGNOSE_TRY(log_->Write(entry));
  const double each = SecondsSince(start_) / static_cast<double>(trainer_.step() - first_);
  bar.Update(trainer_.step(),
             fmt::format("loss {:.4f}, {} left", result.loss,
                         Duration(each * static_cast<double>(f.steps - trainer_.step()))));
  return {};
}

core::Status Session::Train() {
  const TrainFlags& f = run_.flags;
  const auto due = [&](uint64_t every) { return every != 0 && trainer_.step() % every == 0; };
  Progress bar("train", f.steps);
  // A run that ended between its last state and its model has only that left to do.
  if (trainer_.step() == f.steps && run_.task.has_evaluation()) HOGNOSE_TRY(Evaluate(bar));
  while (trainer_.step() < f.steps && !Interrupted()) {
    HOGNOSE_TRY(OneStep(bar));
    const bool last = trainer_.step() == f.steps;
    if (run_.task.has_evaluation() && (due(f.eval_every) || last)) HOGNOSE_TRY(Evaluate(bar));
    if (due(f.save_every)) HOGNOSE_TRY(Save());
  }
  return saved_ == trainer_.step() && saved_ != first_ ? core::Status() : Save();
}

core::Status Session::Finish() {
  const double seconds = SecondsSince(start_);
  const size_t done = trainer_.step() - first_;
  const double speed =
      static_cast<double>(done * run_.task.tokens_per_step()) / std::max(seconds, 1e-9);
  const bool evaluated = !evaluations_.empty();
  if (run_.flags.common.json) {
    core::Value::Object report = {{"out", run_.flags.out},
                                  {"steps", trainer_.step()},
                                  {"loss", last_loss_ ? core::Value(*last_loss_) : core::Value()},
                                  {"parameters", run_.parameters.elements()},
                                  {"trained_parameters", run_.parameters.trained_elements()},
                                  {std::string(run_.unit) + "_per_second", speed},
                                  {"memory_bytes", PeakMemory()},
                                  {"skipped_steps", skipped_}};
    if (evaluated) report.emplace_back("held_out_loss", evaluations_.back().loss);
    PrintJson(report);
    return {};
  }
  std::string line = fmt::format("step {}", trainer_.step());
  if (last_loss_) line += fmt::format(": loss {:.4f}", *last_loss_);
  if (evaluated) line += fmt::format(", held-out loss {:.4f}", evaluations_.back().loss);
  Print(fmt::format("{}, {} written\n", line, run_.flags.out));
  Note(fmt::format("{} steps in {}, {:.0f} {}/s, {} MiB", done, Duration(seconds), speed, run_.unit,
                   PeakMemory() >> 20));
  return {};
}

}  // namespace

core::Result<int> RunTraining(const TrainRun& run) {
  CatchInterrupt();
  Session session(run);
  HOGNOSE_TRY(session.Begin());  // a run that can't begin says so in one line
  if (!run.note.empty()) Note(run.note);
  HOGNOSE_TRY(session.Train());
  HOGNOSE_TRY(session.Finish());
  return Interrupted() ? kExitInterrupted : kExitDone;
}

}  // namespace hognose::cli
