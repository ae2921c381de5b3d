// What a table needs before it is trained on: a part for validation, an answer to missing cells and
// outliers, normalised columns. Everything that is measured (means, deviations) is measured over
// the training rows only; nothing of the validation rows leaks into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "models/normalization.h"
#include "train/table.h"

namespace hognose::train {

// Rows are in the order of time: the first ones train, the last ones validate.
struct Split {
  size_t training = 0;
  size_t validation = 0;
};
// `fraction` in [0, 1): validation = floor(rows * fraction), at least 1 row if fraction > 0. Fails
// if no row is left for training.
core::Result<Split> SplitByTime(const Table& table, double fraction);

// Of one column over the first `rows` rows, missing cells left out. The deviation is that of the
// population (divided by count); exactly 0 for a constant column.
struct ColumnStats {
  size_t count = 0;
  double mean = 0;
  double deviation = 0;
};
ColumnStats Measure(const Table& table, size_t column, size_t rows);

// Cells of all rows further than 10 deviations from the mean of the training rows. A column that is
// constant there has none: it gives no scale. One cell among n rows that it is part of lies at most
// sqrt(n - 1) deviations away, so a table of at most 101 training rows has none in those.
inline constexpr double kOutlierDeviations = 10;
struct Outliers {
  std::vector<size_t> counts;  // for each column
  std::vector<size_t> cells;   // row * columns + column, ascending
};
// `labels`: columns that hold classes, which have no outliers: a rare class is no fault.
Outliers FindOutliers(const Table& table, const Split& split, std::span<const size_t> labels = {});

enum class Missing : uint8_t { kRefuse, kDrop, kMean };

struct CleanReport {
  std::vector<size_t> missing;   // cells of each column
  std::vector<size_t> outliers;  // cells of each column, treated as missing
  size_t dropped_rows = 0;
  size_t filled_cells = 0;
  Split split;  // of the rows that are left
};

// kRefuse: a missing cell or an outlier is an error that names its row and column. Else outliers
// become missing cells, and then
//   kDrop: rows with one are removed;
//   kMean: rows whose target is missing are removed, since nothing is learned from a target that
//          is made up; other cells get the column's mean over the training rows. Filling keeps that
//          mean, so a prediction may fill with Normalization::mean.
// The outliers are measured on the split of the table as it came.
core::Result<CleanReport> CleanTable(Table* table, Missing missing, double fraction,
                                     std::span<const size_t> targets,
                                     std::span<const size_t> labels = {});

// One line for people: "3 missing cells (a: 2, b: 1), 1 outlier (b: 1), 4 rows dropped".
std::string Describe(const CleanReport& report, const Table& table);

// Of chosen columns; scale is the deviation, or 1 for a constant column.
using models::Normalization;
Normalization MeasureNormalization(const Table& table, std::span<const size_t> columns,
                                   const Split& split);

}  // namespace hognose::train
