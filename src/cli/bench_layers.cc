// hognose bench MODEL --layers: where the time of a prompt goes, by group of kernels, all layers
// together.
#include <fmt/format.h>

#include <algorithm>

#include "cli/bench.h"
#include "core/cpu.h"
#include "kernels/target.h"
#include "nn/profile.h"
#include "runtime/session.h"

namespace hognose::cli {
namespace {

using Model = std::shared_ptr<const runtime::Model>;

constexpr BenchColumn kColumns[] = {
    {"group", "group", 11},
    {"tokens", "tokens", 7},
    {"ms", "seconds", 11, 3, 1e-3},
    {"% of time", "share", 11, 1, 1e-2},
    {"weights MB", "weight_bytes", 12, 2, 1e6},
    {"state MB", "state_bytes", 10, 2, 1e6},
    {"GB/s", "bytes_per_second", 9, 1, 1e9},
    {"% of read", "share_of_bandwidth", 11, 0, 1e-2},
    {"GFLOP/s", "operations_per_second", 10, 1, 1e9},
    {"% of multiply", "share_of_multiply_rate", 15, 0, 1e-2},
};

// What the machine can do at most with this model's weights, on its threads.
struct Limits {
  double bandwidth = 0.0;  // bytes a second
  double multiply = 0.0;   // operations a second
};

// Null where there is nothing to divide.
core::Value Share(double part, double whole) {
  return part > 0.0 && whole > 0.0 ? core::Value(part / whole) : core::Value();
}

core::Value ToJson(std::string_view group, size_t tokens, const nn::Profile::Entry& e, double all,
                   const Limits& limits) {
  const double bytes = e.weight_bytes + e.state_bytes;
  return core::Value::Object{
      {"group", group},
      {"tokens", tokens},
      {"seconds", e.seconds},
      {"share", e.seconds / all},
      {"weight_bytes", e.weight_bytes},
      {"state_bytes", e.state_bytes},
      {"bytes_per_second", Share(bytes, e.seconds)},
      {"share_of_bandwidth", Share(bytes, e.seconds * limits.bandwidth)},
      {"operations_per_second", Share(e.operations, e.seconds)},
      {"share_of_multiply_rate", Share(e.operations, e.seconds * limits.multiply)},
  };
}

// The median, over the timed runs, of each group's and of the whole prompt's seconds.
struct Split {
  nn::Profile profile;
  double seconds = 0.0;
};

core::Result<Split> BenchPrompt(const BenchOptions& o, const Model& model, size_t length) {
  nn::Profile profile;
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {.profile = &profile}));
  const std::vector<int32_t> ids = SomeIds(*model, length);
  std::vector<nn::Profile> runs;
  core::Status status;
  Split split;
  const auto prepare = [&] {
    session.Reset();
    profile = {};
  };
  split.seconds = MedianSeconds(o.repeats, prepare, [&] {
    if (status.ok()) status = session.Prefill(ids);
    runs.push_back(profile);
  });
  HOGNOSE_TRY(status);
  runs.erase(runs.begin());  // the warm-up
  split.profile = runs.front();
  for (size_t g = 0; g < nn::kGroupNames.size(); ++g) {
    std::vector<double> seconds;
    for (const auto& run : runs) seconds.push_back(run.entries[g].seconds);
    split.profile.entries[g].seconds = Median(std::move(seconds));
  }
  return split;
}

// One row a group that did something, then what no group took and the whole.
core::Value::Array Rows(const Split& split, size_t tokens, const Limits& limits) {
  core::Value::Array rows;
  nn::Profile::Entry all;
  for (size_t g = 0; g < nn::kGroupNames.size(); ++g) {
    const auto& entry = split.profile.entries[g];
    if (entry.calls == 0) continue;
    rows.push_back(ToJson(nn::kGroupNames[g], tokens, entry, split.seconds, limits));
    all.seconds += entry.seconds;
    all.weight_bytes += entry.weight_bytes;
    all.state_bytes += entry.state_bytes;
    all.operations += entry.operations;
  }
  const nn::Profile::Entry other = {.seconds = std::max(0.0, split.seconds - all.seconds)};
  rows.push_back(ToJson("other", tokens, other, split.seconds, limits));
  all.seconds = split.seconds;
  rows.push_back(ToJson("all", tokens, all, split.seconds, limits));
  return rows;
}

}  // namespace

core::Result<int> BenchLayers(const BenchOptions& o) {
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, /*tokenizer=*/false));
  const auto type = ProductType(model->lm.embedding);
  const Limits limits = {ReadBandwidth(*model, o.repeats),
                         MultiplyRate(*model->pool, type, o.repeats)};
  Note(
      fmt::format("{}, {}, {} threads, {} weights read at {:.1f} GB/s, {} multiplied at {:.0f} "
                  "GFLOP/s",
                  core::Cpu().brand, kernels::CurrentTarget(), model->pool->threads(),
                  codecs::Name(model->lm.embedding), limits.bandwidth / 1e9,
                  kernels::kMultiplyTypeNames[static_cast<size_t>(type)], limits.multiply / 1e9));
  const std::vector<uint64_t> prompts =
      o.prompts.empty() ? std::vector<uint64_t>{1, 4, 512} : o.prompts;
  core::Value::Array rows;
  for (const size_t length : prompts) {
    if (length == 0) continue;
    HOGNOSE_ASSIGN(const Split split, BenchPrompt(o, model, length));
    if (!o.common.json) PrintHead(kColumns);
    for (auto& row : Rows(split, length, limits)) {
      if (!o.common.json) PrintRow(kColumns, row);
      rows.push_back(std::move(row));
    }
  }
  if (o.common.json) PrintJson(rows);
  return kExitDone;
}

}  // namespace hognose::cli
