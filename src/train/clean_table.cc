#include "train/clean_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/check.h"

namespace hognose::train {
namespace {

using core::Result;
using core::Status;

std::vector<size_t> CountMissing(const Table& table) {
  std::vector<size_t> counts(table.columns());
  for (size_t i = 0; i < table.values.size(); ++i) {
    counts[i % table.columns()] += std::isnan(table.values[i]);
  }
  return counts;
}

size_t Sum(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

Status RefuseMissing(const Table& table) {
  for (size_t i = 0; i < table.values.size(); ++i) {
    if (!std::isnan(table.values[i])) continue;
    return Status::Failed(fmt::format("{}: column {}: got nothing, want a finite number",
                                      table.Where(i / table.columns()),
                                      ShowCell(table.names[i % table.columns()])));
  }
  return {};
}

Status RefuseOutliers(const Table& table, const Outliers& outliers, const Split& split) {
  if (outliers.cells.empty()) return {};
  const size_t cell = outliers.cells.front(), column = cell % table.columns();
  const ColumnStats stats = Measure(table, column, split.training);
  return Status::Failed(fmt::format(
      "{}: column {}: got {}, want within {} standard deviations ({:.4g}) of the mean ({:.4g}); "
      "cells outside: {} (missing cells and outliers may be dropped or replaced by the mean)",
      table.Where(cell / table.columns()), ShowCell(table.names[column]), table.values[cell],
      kOutlierDeviations, stats.deviation, stats.mean, outliers.cells.size()));
}

// Removes the rows with a missing cell in one of the columns; returns how many.
size_t DropRows(Table* table, std::span<const size_t> columns) {
  const size_t width = table->columns(), before = table->rows;
  size_t kept = 0;
  for (size_t r = 0; r < before; ++r) {
    const double* row = table->values.data() + r * width;
    if (std::any_of(columns.begin(), columns.end(), [&](size_t c) { return std::isnan(row[c]); })) {
      continue;
    }
    std::copy_n(row, width, table->values.data() + kept * width);
    table->numbers[kept] = table->numbers[r];
    if (!table->time.empty()) table->time[kept] = table->time[r];
    ++kept;
  }
  table->rows = kept;
  table->values.resize(kept * width);
  table->numbers.resize(kept);
  if (!table->time.empty()) table->time.resize(kept);
  return before - kept;
}

Status FillWithMeans(Table* table, const Split& split, size_t* filled) {
  for (size_t c = 0; c < table->columns(); ++c) {
    const ColumnStats stats = Measure(*table, c, split.training);
    for (size_t i = c; i < table->values.size(); i += table->columns()) {
      if (!std::isnan(table->values[i])) continue;
      if (stats.count == 0) {
        return Status::Failed(
            fmt::format("{}: column {}: got no number in the training rows, want some for a mean",
                        table->path, ShowCell(table->names[c])));
      }
      table->values[i] = stats.mean;
      ++*filled;
    }
  }
  return {};
}

}  // namespace

Result<Split> SplitByTime(const Table& table, double fraction) {
  HOGNOSE_CHECK(fraction >= 0 && fraction < 1);
  Split split;
  split.validation = static_cast<size_t>(static_cast<double>(table.rows) * fraction);
  if (fraction > 0) split.validation = std::max<size_t>(split.validation, 1);
  if (split.validation >= table.rows) {
    return Status::Failed(fmt::format("{}: got {} rows, want at least {} ({} of them to validate)",
                                      table.path, table.rows, split.validation + 1,
                                      split.validation));
  }
  split.training = table.rows - split.validation;
  return split;
}

// Welford's recurrence: the mean of equal numbers is that number and their deviation 0, with no
// rounding, which a mean by division doesn't give.
ColumnStats Measure(const Table& table, size_t column, size_t rows) {
  HOGNOSE_CHECK(column < table.columns() && rows <= table.rows);
  ColumnStats stats;
  double squares = 0;
  for (size_t r = 0; r < rows; ++r) {
    const double x = table.values[r * table.columns() + column];
    if (std::isnan(x)) continue;
    const double delta = x - stats.mean;
    stats.mean += delta / static_cast<double>(++stats.count);
    squares += delta * (x - stats.mean);
  }
  if (stats.count > 0) stats.deviation = std::sqrt(squares / static_cast<double>(stats.count));
  return stats;
}

Outliers FindOutliers(const Table& table, const Split& split, std::span<const size_t> labels) {
  Outliers outliers;
  std::vector<ColumnStats> stats;
  for (size_t c = 0; c < table.columns(); ++c) stats.push_back(Measure(table, c, split.training));
  for (const size_t c : labels) stats[c].deviation = 0;
  outliers.counts.resize(table.columns());
  for (size_t i = 0; i < table.values.size(); ++i) {
    const ColumnStats& column = stats[i % table.columns()];
    const double limit = kOutlierDeviations * column.deviation;
    // False for a missing cell.
    if (limit > 0 && std::abs(table.values[i] - column.mean) > limit) {
      ++outliers.counts[i % table.columns()];
      outliers.cells.push_back(i);
    }
  }
  return outliers;
}

Result<CleanReport> CleanTable(Table* table, Missing missing, double fraction,
                               std::span<const size_t> targets, std::span<const size_t> labels) {
  CleanReport report;
  HOGNOSE_ASSIGN(report.split, SplitByTime(*table, fraction));
  if (missing == Missing::kRefuse) HOGNOSE_TRY(RefuseMissing(*table));
  report.missing = CountMissing(*table);
  const Outliers outliers = FindOutliers(*table, report.split, labels);
  if (missing == Missing::kRefuse) {
    report.outliers.resize(table->columns());
    HOGNOSE_TRY(RefuseOutliers(*table, outliers, report.split));
    return report;
  }
  report.outliers = outliers.counts;
  for (const size_t i : outliers.cells) {
    table->values[i] = std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<size_t> all(table->columns());
  std::iota(all.begin(), all.end(), size_t{0});
  report.dropped_rows =
      DropRows(table, missing == Missing::kDrop ? std::span<const size_t>(all) : targets);
  if (table->rows == 0) {
    return Status::Failed(
        fmt::format("{}: got a missing cell in each of {} rows, want some rows without",
                    table->path, report.dropped_rows));
  }
  HOGNOSE_ASSIGN(report.split, SplitByTime(*table, fraction));
  HOGNOSE_TRY(FillWithMeans(table, report.split, &report.filled_cells));
  return report;
}

std::string Describe(const CleanReport& report, const Table& table) {
  const auto list = [&](const std::vector<size_t>& counts, std::string_view one,
                        std::string_view many) {
    const size_t sum = Sum(counts);
    std::string text = fmt::format("{} {}", sum, sum == 1 ? one : many);
    std::string_view between = " (";
    for (size_t c = 0; c < counts.size(); ++c) {
      if (counts[c] == 0) continue;
      text += fmt::format("{}{}: {}", between, table.names[c], counts[c]);
      between = ", ";
    }
    return sum == 0 ? text : text + ")";
  };
  std::string text = list(report.missing, "missing cell", "missing cells") + ", " +
                     list(report.outliers, "outlier", "outliers");
  if (report.dropped_rows > 0) {
    text += fmt::format(", {} rows dropped", report.dropped_rows);
  }
  if (report.filled_cells > 0) {
    text += fmt::format(", {} cells filled with the mean", report.filled_cells);
  }
  return text;
}

Normalization MeasureNormalization(const Table& table, std::span<const size_t> columns,
                                   const Split& split) {
  Normalization result;
  for (const size_t column : columns) {
    const ColumnStats stats = Measure(table, column, split.training);
    result.mean.push_back(stats.mean);
    result.scale.push_back(stats.deviation > 0 ? stats.deviation : 1);
  }
  return result;
}

}  // namespace hognose::train
