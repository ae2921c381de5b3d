// Tables of numbers that sequence models train on and predict from: CSV with a header, or NPY
// [rows, columns] (f32, f64, i64 or i32; columns are then named c0, c1, ...). Rows are in the order
// of time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "train/csv.h"
#include "train/data_format.h"

namespace hognose::train {

struct Table {
  std::string path;
  std::vector<std::string> names;  // features and targets; the column of time isn't one
  size_t rows = 0;
  std::vector<double> values;   // [rows, columns]; NaN is a missing cell
  std::vector<double> time;     // numbers as they are, timestamps in seconds; empty without
  std::vector<size_t> numbers;  // of each row in the file: line of a CSV, row from 0 on of an NPY
  bool has_lines = false;       // what `numbers` are

  size_t columns() const { return names.size(); }
  std::span<const double> row(size_t i) const {
    return std::span(values).subspan(i * columns(), columns());
  }
  std::string Where(size_t row) const;  // "x.csv: line 7"
};

// Which columns a row has. The rest of a row's cells is refused.
struct RowOptions {
  std::string time = {};                  // this column holds time, strictly increasing
  std::vector<std::string> columns = {};  // wanted, in this order; empty: all, as in the header
  std::vector<std::string> ignored = {};  // may be there and are not read
  bool missing = false;                   // missing cells become NaN; else they are an error
};

// One row after the other, as they come: a file, or lines of a stream. Columns are found by the
// header's names.
class RowParser {
 public:
  // `header`: the first line. Errors: "<where>: line 1: ...".
  static core::Result<RowParser> Create(std::string_view header, const std::string& where,
                                        const RowOptions& options);
  static core::Result<RowParser> Create(const CsvRecord& header, const std::string& where,
                                        const RowOptions& options);

  const std::vector<std::string>& names() const { return names_; }

  // The next line of a stream; `row` has a place for each name. After an error the next line may
  // follow.
  core::Status Parse(std::string_view line, std::span<double> row);
  core::Status Parse(const CsvRecord& record, std::span<double> row);
  // Of the last row that was parsed; nothing without a column of time.
  std::optional<double> time() const { return time_.value; }

 private:
  struct Time {
    std::optional<double> value;
    bool timestamp = false;
    size_t line = 0;
  };
  static constexpr size_t kIgnored = SIZE_MAX;
  static constexpr size_t kTime = SIZE_MAX - 1;

  core::Status PlaceColumns(const RowOptions& options);
  core::Status ParseCells(const CsvRecord& record, std::span<double> row, Time* time) const;
  core::Status CheckTime(const CsvRecord& record, std::string_view cell, Time* time) const;
  std::string At(size_t line) const;

  std::string where_;
  std::vector<std::string> header_;
  std::vector<size_t> place_;  // of each cell in a row, or kIgnored or kTime
  std::vector<std::string> names_;
  bool missing_ = false;
  size_t line_ = 1;
  Time time_;
};

// kAuto: NPY by its name or first bytes, else CSV.
core::Result<Table> ReadTable(const std::string& path, DataFormat format,
                              const RowOptions& options);
// The same over CSV in memory.
core::Result<Table> ParseCsv(std::string_view text, const std::string& where,
                             const RowOptions& options);

// The columns with these names. `flag` is what asked for them: "--target: got "z", want a column
// of x.csv: a, b, c".
core::Result<std::vector<size_t>> FindColumns(const Table& table,
                                              std::span<const std::string> names,
                                              std::string_view flag);

}  // namespace hognose::train
