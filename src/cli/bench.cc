// hognose bench: speed of prompt and generation.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/command.h"
#include "cli/options.h"
#include "core/cpu.h"
#include "kernels/read_bytes/read_bytes.h"
#include "kernels/target.h"
#include "runtime/batch.h"
#include "runtime/session.h"

namespace hognose::cli {
namespace {

struct BenchOptions {
  CommonOptions common;
  std::string model;
  std::vector<uint64_t> prompts = {4, 512};
  uint64_t generate = 64;
  std::vector<uint64_t> batches = {1};
  uint64_t repeats = 5;
};

double Seconds(core::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The median of `repeats` timed runs after one warm-up.
double Median(size_t repeats, core::FunctionRef<void()> work) {
  work();
  std::vector<double> seconds;
  for (size_t i = 0; i < repeats; ++i) seconds.push_back(Seconds(work));
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// Bytes a second that these threads read of these weights: the limit that a step is measured by.
double ReadBandwidth(const runtime::Model& model, size_t repeats) {
  core::Exec exec = model.exec();
  const double seconds = Median(repeats, [&] {
    for (const auto& [name, tensor] : model.folder.tensors) {
      (void)kernels::ReadBytes(exec, {static_cast<const uint8_t*>(tensor.data), tensor.bytes()});
    }
  });
  return static_cast<double>(model.weight_bytes()) / seconds;
}

// Weight bytes that one pass reads: all but an untied embedding, of which a pass reads a few rows.
size_t PassBytes(const runtime::Model& model) {
  return model.weight_bytes() - (model.lm.tied ? 0 : model.lm.embedding.bytes());
}

// Ids that hit rows all over the embedding.
int32_t SomeId(const runtime::Model& model, size_t i) {
  return static_cast<int32_t>(i * 7919 % std::min(model.lm.vocab, model.lm.input_ids()));
}

struct Row {
  std::string_view phase;
  size_t tokens = 0;  // of each sequence
  size_t batch = 1;
  double seconds = 0.0;
};

core::Value ToJson(const runtime::Model& model, const Row& row, size_t state_bytes,
                   double bandwidth) {
  // A prompt reads the weights once a piece; generation once a step, for all sequences together.
  // Each sequence's state is read and written.
  const size_t passes = row.phase == "generate" ? row.tokens : (row.tokens + 255) / 256;
  const double moved = static_cast<double>(PassBytes(model) + 2 * state_bytes * row.batch) *
                       static_cast<double>(passes) / row.seconds;
  return core::Value::Object{
      {"phase", row.phase},
      {"tokens", row.tokens},
      {"batch", row.batch},
      {"threads", model.pool->threads()},
      {"dtype", codecs::Name(model.lm.embedding)},
      {"tokens_per_second", static_cast<double>(row.tokens * row.batch) / row.seconds},
      {"seconds", row.seconds},
      {"weight_bytes", PassBytes(model)},
      {"state_bytes", state_bytes},
      {"bytes_per_second", moved},
      {"share_of_bandwidth", moved / bandwidth},
  };
}

void PrintRow(const core::Value& row) {
  const auto number = [&](std::string_view name) {
    double value = 0.0;
    row.Find(name)->AsDouble(&value);
    return value;
  };
  Print(fmt::format("{:<10}{:>8}{:>7}{:>9}{:>8}{:>12.1f}{:>12.2f}{:>12.1f}{:>14.0f}\n",
                    *row.Find("phase")->AsString(), number("tokens"), number("batch"),
                    number("threads"), *row.Find("dtype")->AsString(), number("tokens_per_second"),
                    number("seconds") * 1e3, number("bytes_per_second") / 1e9,
                    number("share_of_bandwidth") * 100.0));
}

using Model = std::shared_ptr<const runtime::Model>;

core::Result<Row> BenchPrompt(const BenchOptions& o, const Model& model, size_t length) {
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {}));
  std::vector<int32_t> ids(length);
  for (size_t i = 0; i < length; ++i) ids[i] = SomeId(*model, i);
  core::Status status;
  const double seconds = Median(o.repeats, [&] {
    session.Reset();
    if (status.ok()) status = session.Prefill(ids);
  });
  HOGNOSE_TRY(status);
  return Row{"prompt", length, 1, seconds};
}

core::Result<Row> BenchGenerate(const BenchOptions& o, const Model& model, size_t batch) {
  HOGNOSE_ASSIGN(auto pass, runtime::Batch::Create(model, batch, /*exact=*/false));
  std::vector<runtime::Session> sessions;
  for (size_t i = 0; i < batch; ++i) {
    HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {.piece = 1}));
    sessions.push_back(std::move(session));
  }
  std::vector<int32_t> ids(batch);
  std::vector<runtime::Batch::Input> inputs(batch);
  for (size_t i = 0; i < batch; ++i) inputs[i] = {&sessions[i], {&ids[i], 1}};
  core::Status status;
  const double seconds = Median(o.repeats, [&] {
    for (size_t step = 0; step < o.generate && status.ok(); ++step) {
      for (size_t i = 0; i < batch; ++i) ids[i] = SomeId(*model, step * batch + i);
      status = pass.Feed(inputs);
    }
  });
  HOGNOSE_TRY(status);
  return Row{"generate", o.generate, batch, seconds};
}

core::Result<int> Bench(const BenchOptions& o) {
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, /*tokenizer=*/false));
  const double bandwidth = ReadBandwidth(*model, o.repeats);
  Note(fmt::format("{}, {}, {} threads, weights read at {:.1f} GB/s", core::Cpu().brand,
                   kernels::CurrentTarget(), model->pool->threads(), bandwidth / 1e9));
  if (!o.common.json) {
    Print(fmt::format("{:<10}{:>8}{:>7}{:>9}{:>8}{:>12}{:>12}{:>12}{:>14}\n", "phase", "tokens",
                      "batch", "threads", "dtype", "tokens/s", "ms", "GB/s", "% of read"));
  }
  core::Value::Array rows;
  const auto add = [&](const Row& row) {
    rows.push_back(ToJson(*model, row, StateBytes(*model), bandwidth));
    if (!o.common.json) PrintRow(rows.back());
  };
  for (const size_t length : o.prompts) {
    if (length == 0) continue;
    HOGNOSE_ASSIGN(const Row row, BenchPrompt(o, model, length));
    add(row);
  }
  for (const size_t batch : o.batches) {
    if (o.generate == 0) continue;
    HOGNOSE_ASSIGN(const Row row, BenchGenerate(o, model, batch));
    add(row);
  }
  if (o.common.json) PrintJson(rows);
  return kExitDone;
}

}  // namespace

Runner AddBench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  AddModel(app, o->model);
  AddCommon(app, o->common);
  constexpr uint64_t kMost = uint64_t{1} << 24;
  AddIntegers(app, "--prompt", &o->prompts, 0, kMost, "Prompt lengths; 0 for none");
  AddInteger(app, "--generate", &o->generate, 0, kMost, "Tokens to generate; 0 for none");
  AddIntegers(app, "--batch", &o->batches, 1, 1024, "Sequences that generate at a time");
  AddInteger(app, "--repeats", &o->repeats, 1, 1000, "Timed runs of each; the median counts");
  return [o] { return Bench(*o); };
}

}  // namespace hognose::cli
