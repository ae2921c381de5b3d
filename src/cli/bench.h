// What the parts of `hognose bench` share: the limits of the machine, timing, tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "core/function_ref.h"
#include "kernels/multiply_rate/multiply_rate.h"

namespace hognose::cli {

struct BenchOptions {
  CommonOptions common;
  std::string model;
  std::vector<uint64_t> prompts;  // empty: the default of the table that is asked for
  uint64_t generate = 64;
  std::vector<uint64_t> batches = {1};
  uint64_t repeats = 5;
  bool layers = false;
  bool machine = false;
};

core::Result<int> BenchSpeed(const BenchOptions& options);
core::Result<int> BenchLayers(const BenchOptions& options);
core::Result<int> BenchMachine(const BenchOptions& options);

// The median of `repeats` timed runs of `work` after one warm-up, in seconds; `prepare` comes
// before each and is not timed.
double MedianSeconds(size_t repeats, core::FunctionRef<void()> prepare,
                     core::FunctionRef<void()> work);
double MedianSeconds(size_t repeats, core::FunctionRef<void()> work);
double Median(std::vector<double> values);

// Bytes a second that the model's threads read of its weights: the limit of a step.
double ReadBandwidth(const runtime::Model& model, size_t repeats);
// Operations a second that these threads together multiply and add numbers of a type with; 0 where
// the target has no instruction for it.
double MultiplyRate(core::ThreadPool& pool, kernels::MultiplyType type, size_t repeats);
// The type that products over these weights are computed in, activations included.
kernels::MultiplyType ProductType(const codecs::WeightMatrix& weights);

// Weight bytes that one pass reads: all but an untied embedding, of which a pass reads a few rows.
size_t PassBytes(const runtime::Model& model);
// Ids that hit rows all over the embedding.
std::vector<int32_t> SomeIds(const runtime::Model& model, size_t count);

// One column of a table for people: a member of the JSON row, divided by `unit`.
struct BenchColumn {
  std::string_view title;
  std::string_view member;
  int width = 0;
  int digits = 0;
  double unit = 1.0;
};
// The first column stands left, the others right.
void PrintHead(std::span<const BenchColumn> columns);
// A member that is null is "-".
void PrintRow(std::span<const BenchColumn> columns, const core::Value& row);

}  // namespace hognose::cli
