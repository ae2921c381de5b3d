// hognose bench MODEL: speed of prompt and generation.
#include <fmt/format.h>

#include "cli/bench.h"
#include "core/cpu.h"
#include "kernels/target.h"
#include "runtime/batch.h"
#include "runtime/session.h"

namespace hognose::cli {
namespace {

using Model = std::shared_ptr<const runtime::Model>;

struct Row {
  std::string_view phase;
  size_t tokens = 0;  // of each sequence
  size_t batch = 1;
  double seconds = 0.0;
};

core::Value ToJson(const runtime::Model& model, const Row& row, double bandwidth) {
  // A prompt reads the weights once a piece; generation once a step, for all sequences together.
  // Each sequence's state is read and written.
  const size_t piece = runtime::SessionOptions().piece;
  const size_t passes = row.phase == "generate" ? row.tokens : (row.tokens + piece - 1) / piece;
  const size_t state_bytes = StateBytes(model);
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

constexpr BenchColumn kColumns[] = {
    {"phase", "phase", 10},
    {"tokens", "tokens", 8},
    {"batch", "batch", 7},
    {"threads", "threads", 9},
    {"dtype", "dtype", 8},
    {"tokens/s", "tokens_per_second", 12, 1},
    {"ms", "seconds", 12, 2, 1e-3},
    {"GB/s", "bytes_per_second", 12, 1, 1e9},
    {"% of read", "share_of_bandwidth", 14, 0, 1e-2},
};

core::Result<Row> BenchPrompt(const BenchOptions& o, const Model& model, size_t length) {
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {}));
  const std::vector<int32_t> ids = SomeIds(*model, length);
  core::Status status;
  const double seconds = MedianSeconds(
      o.repeats, [&] { session.Reset(); },
      [&] {
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
  const std::vector<int32_t> ids = SomeIds(*model, o.generate * batch);
  std::vector<runtime::Batch::Input> inputs(batch);
  core::Status status;
  const double seconds = MedianSeconds(o.repeats, [&] {
    for (size_t step = 0; step < o.generate && status.ok(); ++step) {
      for (size_t i = 0; i < batch; ++i) inputs[i] = {&sessions[i], {&ids[step * batch + i], 1}};
      status = pass.Feed(inputs);
    }
  });
  HOGNOSE_TRY(status);
  return Row{"generate", o.generate, batch, seconds};
}

}  // namespace

core::Result<int> BenchSpeed(const BenchOptions& o) {
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, /*tokenizer=*/false));
  const double bandwidth = ReadBandwidth(*model, o.repeats);
  Note(fmt::format("{}, {}, {} threads, weights read at {:.1f} GB/s", core::Cpu().brand,
                   kernels::CurrentTarget(), model->pool->threads(), bandwidth / 1e9));
  if (!o.common.json) PrintHead(kColumns);
  core::Value::Array rows;
  const auto add = [&](const Row& row) {
    rows.push_back(ToJson(*model, row, bandwidth));
    if (!o.common.json) PrintRow(kColumns, rows.back());
  };
  const std::vector<uint64_t> prompts =
      o.prompts.empty() ? std::vector<uint64_t>{4, 512} : o.prompts;
  for (const size_t length : prompts) {
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

}  // namespace hognose::cli
