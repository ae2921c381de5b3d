// hognose train --task regression|classification: a sequence model from a table.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/train_run.h"
#include "cli/train_start.h"
#include "models/registry.h"
#include "train/clean_table.h"
#include "train/sequence_data.h"
#include "train/sequence_task.h"

namespace hognose::cli {
namespace {

using models::SequenceConfig;

// The table, clean, and how it is split.
struct Rows {
  train::Table table;
  train::Split split;
  std::string note;
};

core::Result<Rows> ReadRows(const TrainFlags& f, const std::vector<std::string>& columns,
                            const std::vector<std::string>& targets, const std::string& time) {
  HOGNOSE_ASSIGN(const auto format, train::ParseDataFormat(f.data_format));
  const bool refuse = f.missing.empty() || f.missing == "refuse";
  Rows rows;
  // Missing cells come through in any case: CleanTable's message about them says what can be done.
  HOGNOSE_ASSIGN(rows.table, train::ReadTable(f.data, format,
                                              {.time = time, .columns = columns, .missing = true}));
  HOGNOSE_ASSIGN(const auto at, train::FindColumns(rows.table, targets, "--target"));
  const train::Missing how = refuse                ? train::Missing::kRefuse
                             : f.missing == "drop" ? train::Missing::kDrop
                                                   : train::Missing::kMean;
  const std::vector<size_t> labels = f.task == "classification" ? at : std::vector<size_t>();
  HOGNOSE_ASSIGN(const train::CleanReport report,
                 train::CleanTable(&rows.table, how, f.validation, at, labels));
  rows.split = report.split;
  rows.note = fmt::format("{}: {} rows to train on, {} held out; {}", f.data, rows.split.training,
                          rows.split.validation, train::Describe(report, rows.table));
  return rows;
}

core::Status Differs(std::string_view flag, std::string_view got, const std::string& where,
                     std::string_view want) {
  return core::Status::Usage(fmt::format("{}: got {}, want {} as {} says", flag, got, want, where));
}

// An existing model keeps its columns and its normalisation; only the loss may be another one.
core::Result<SequenceConfig> ContinuedConfig(const TrainFlags& f, const Start& start) {
  const models::Checkpoint checkpoint{start.config, start.where, start.tensors(), start.where};
  HOGNOSE_ASSIGN(const auto model, models::BuildSequence(checkpoint));
  SequenceConfig config = model.config;
  const std::string task = config.classification ? "classification" : "regression";
  if (f.task != task) return Differs("--task", f.task, start.where, task);
  if (!f.targets.empty() && f.targets != config.targets) {
    return Differs("--target", fmt::format("{}", fmt::join(f.targets, ",")), start.where,
                   fmt::format("{}", fmt::join(config.targets, ",")));
  }
  if (!f.time.empty() && f.time != config.time) {
    return Differs("--time", f.time, start.where, config.time.empty() ? "none" : config.time);
  }
  if (f.classes && *f.classes != config.classes) {
    return Differs("--classes", fmt::format("{}", *f.classes), start.where,
                   fmt::format("{}", config.classes));
  }
  const std::string loss = config.huber ? "huber" : "mse";
  if (f.resume && !f.loss.empty() && f.loss != loss) {
    return Differs("--loss", f.loss, start.where, loss);
  }
  if (f.resume && f.huber_delta && *f.huber_delta != config.huber_delta) {
    return Differs("--huber-delta", fmt::format("{}", *f.huber_delta), start.where,
                   fmt::format("{}", config.huber_delta));
  }
  if (!f.loss.empty()) config.huber = f.loss == "huber";
  if (f.huber_delta) config.huber_delta = *f.huber_delta;
  return config;
}

core::Value WithFields(core::Value config, const SequenceConfig& sequence) {
  for (const auto& field : sequence.Fields()) config = train::With(std::move(config), {field});
  return config;
}

// A model and the data to train it on.
struct Prepared {
  Start start;
  train::SequenceData data;
  std::string note;  // about the data, for people
};

core::Result<Prepared> PrepareContinued(const TrainFlags& f) {
  HOGNOSE_ASSIGN(Start start, OpenStart(f));
  HOGNOSE_ASSIGN(const SequenceConfig config, ContinuedConfig(f, start));
  start.config = WithFields(start.config, config);
  std::vector<std::string> columns = config.features;
  columns.insert(columns.end(), config.targets.begin(), config.targets.end());
  HOGNOSE_ASSIGN(const Rows rows, ReadRows(f, columns, config.targets, config.time));
  HOGNOSE_ASSIGN(auto data, train::SequenceData::Create(rows.table, rows.split, config));
  return Prepared{std::move(start), std::move(data), rows.note};
}

core::Result<Prepared> PrepareNew(const TrainFlags& f) {
  HOGNOSE_ASSIGN(Start start, ConfigureStart(f));
  HOGNOSE_ASSIGN(const Rows rows, ReadRows(f, {}, f.targets, f.time));
  HOGNOSE_ASSIGN(const auto targets, train::FindColumns(rows.table, f.targets, "--target"));
  HOGNOSE_ASSIGN(const SequenceConfig config,
                 train::MeasureSequence(rows.table, rows.split,
                                        {.classification = f.task == "classification",
                                         .targets = targets,
                                         .time = f.time,
                                         .classes = f.classes.value_or(0),
                                         .huber = f.loss == "huber",
                                         .huber_delta = f.huber_delta.value_or(1.0)}));
  start.config = WithFields(start.config, config);
  HOGNOSE_ASSIGN(start.fresh, train::InitialTensors(
                                  start.config, start.where, f.seed,
                                  train::SequenceSizes{config.features.size(), config.outputs()}));
  HOGNOSE_ASSIGN(auto data, train::SequenceData::Create(rows.table, rows.split, config));
  return Prepared{std::move(start), std::move(data), rows.note};
}

}  // namespace

core::Result<int> TrainSequence(const TrainFlags& f) {
  auto prepared = SourceOf(f).empty() ? PrepareNew(f) : PrepareContinued(f);
  HOGNOSE_TRY(prepared.status());
  Start& start = prepared->start;
  HOGNOSE_ASSIGN(const double min_a_log, LeastALog(f, start));
  HOGNOSE_ASSIGN(const auto pool, runtime::NewPool(f.common.threads.value_or(0), f.common.pin));
  HOGNOSE_ASSIGN(const auto model, models::BuildSequence({.config = start.config,
                                                          .config_name = start.where,
                                                          .tensors = start.tensors(),
                                                          .weights_name = start.weights}));
  HOGNOSE_ASSIGN(auto parameters,
                 MakeParameters(f, {*pool}, start, model.unknown_tensors, min_a_log));
  HOGNOSE_ASSIGN(const auto task, train::SequenceTask::Create({*pool}, start.config, start.where,
                                                              prepared->data, TaskOptionsOf(f)));
  HOGNOSE_TRY(CheckUnknown(f, start, model.unknown_tensors));
  return RunTraining({.flags = f,
                      .exec = {*pool},
                      .task = *task,
                      .parameters = parameters,
                      .config = start.config,
                      .files = start.files,
                      .min_a_log = min_a_log,
                      .unit = "rows",
                      .note = prepared->note});
}

}  // namespace hognose::cli
