// hognose bench: options, and what its tables share.
#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/options.h"
#include "kernels/read_bytes/read_bytes.h"

namespace hognose::cli {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double MedianSeconds(size_t repeats, core::FunctionRef<void()> work) {
  return MedianSeconds(
      repeats, [] {}, work);
}

double MedianSeconds(size_t repeats, core::FunctionRef<void()> prepare,
                     core::FunctionRef<void()> work) {
  using Clock = std::chrono::steady_clock;
  prepare();
  work();
  std::vector<double> seconds;
  for (size_t i = 0; i < repeats; ++i) {
    prepare();
    const auto start = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return Median(std::move(seconds));
}

double ReadBandwidth(const runtime::Model& model, size_t repeats) {
  core::Exec exec = model.exec();
  const double seconds = MedianSeconds(repeats, [&] {
    for (const auto& [name, tensor] : model.folder.tensors) {
      (void)kernels::ReadBytes(exec, {static_cast<const uint8_t*>(tensor.data), tensor.bytes()});
    }
  });
  return static_cast<double>(model.weight_bytes()) / seconds;
}

double MultiplyRate(core::ThreadPool& pool, kernels::MultiplyType type, size_t repeats) {
  const kernels::MultiplyUnit unit = kernels::UnitFor(type);
  if (unit.products == 0.0) return 0.0;
  // A few milliseconds on any machine: long against the start of a round of the pool.
  constexpr double kOperations = 1e9;
  const auto rounds = static_cast<uint64_t>(kOperations / unit.operations());
  const double seconds = MedianSeconds(repeats, [&] {
    pool.Run(pool.threads(), [&](size_t) { (void)kernels::MultiplyRate(type, rounds, 1, 1); });
  });
  return static_cast<double>(rounds * pool.threads()) * unit.operations() / seconds;
}

kernels::MultiplyType ProductType(const codecs::WeightMatrix& weights) {
  switch (kernels::PickActivations(weights, /*exact=*/false)) {
    case kernels::Activations::kBF16:
      return kernels::MultiplyType::kBF16;
    case kernels::Activations::kInt16:
      return kernels::MultiplyType::kInt8;
    case kernels::Activations::kF32:
      break;
  }
  return kernels::MultiplyType::kF32;
}

size_t PassBytes(const runtime::Model& model) {
  return model.weight_bytes() - (model.lm.tied ? 0 : model.lm.embedding.bytes());
}

std::vector<int32_t> SomeIds(const runtime::Model& model, size_t count) {
  const size_t limit = std::min(model.lm.vocab, model.lm.input_ids());
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(i * 7919 % limit);
  return ids;
}

namespace {

void PrintCells(std::span<const BenchColumn> columns, const std::vector<std::string>& cells) {
  std::string line = fmt::format("{:<{}}", cells[0], columns[0].width);
  for (size_t i = 1; i < cells.size(); ++i)
    line += fmt::format("{:>{}}", cells[i], columns[i].width);
  Print(line + "\n");
}

}  // namespace

void PrintHead(std::span<const BenchColumn> columns) {
  std::vector<std::string> cells;
  for (const auto& column : columns) cells.emplace_back(column.title);
  PrintCells(columns, cells);
}

void PrintRow(std::span<const BenchColumn> columns, const core::Value& row) {
  std::vector<std::string> cells;
  for (const auto& column : columns) {
    const core::Value& member = *row.Find(column.member);
    double number = 0.0;
    if (member.AsDouble(&number)) {
      cells.push_back(fmt::format("{:.{}f}", number / column.unit, column.digits));
    } else {
      cells.emplace_back(member.is_null() ? "-" : *member.AsString());
    }
  }
  PrintCells(columns, cells);
}

Runner AddBench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  AddModel(app, o->model);
  AddCommon(app, o->common);
  constexpr uint64_t kMost = uint64_t{1} << 24;
  AddIntegers(app, "--prompt", &o->prompts, 0, kMost,
              "Prompt lengths; 0 for none [4,512; with --layers 1,4,512]");
  AddInteger(app, "--generate", &o->generate, 0, kMost, "Tokens to generate; 0 for none");
  AddIntegers(app, "--batch", &o->batches, 1, 1024, "Sequences that generate at a time");
  AddInteger(app, "--repeats", &o->repeats, 1, 1000, "Timed runs of each; the median counts");
  AddFlag(app, "--layers", &o->layers, "Where the time of a prompt goes, by group of kernels");
  AddFlag(app, "--machine", &o->machine, "Read bandwidth and multiply rates; needs no model");
  return [o]() -> core::Result<int> {
    if (o->machine && o->layers) {
      return core::Status::Usage("--machine: got --layers too, want one table");
    }
    if (o->machine && !o->model.empty()) {
      return core::Status::Usage(
          fmt::format("--machine: got the model {} too, want none", o->model));
    }
    if (o->machine) return BenchMachine(*o);
    return o->layers ? BenchLayers(*o) : BenchSpeed(*o);
  };
}

}  // namespace hognose::cli
