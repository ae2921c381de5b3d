#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "io/json.h"
#include "train/table.h"

namespace hognose::train {
namespace {

using core::Result;
using core::Status;

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Names that are none: a file without a header must not lose its first row.
Status CheckHeader(const std::vector<std::string>& names, const std::string& where) {
  double value = 0;
  if (std::all_of(names.begin(), names.end(), [&](const std::string& name) {
        return ParseCell(name, &value) == Cell::kNumber;
      })) {
    return Status::Failed(
        fmt::format("{}: got numbers only, want a header with the names of the columns", where));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string at = fmt::format("{}: column {}", where, i + 1);
    if (names[i].empty()) return Status::Failed(at + ": got no name, want one");
    if (!io::IsUtf8(names[i])) return Status::Failed(at + ": got a name that isn't UTF-8");
    const auto first = std::find(names.begin(), names.end(), names[i]) - names.begin();
    if (static_cast<size_t>(first) < i) {
      return Status::Failed(fmt::format("{}: got {}, want a name that column {} doesn't have", at,
                                        ShowCell(names[i]), first + 1));
    }
  }
  return {};
}

// A line of its own as a record; a blank one has one empty cell.
Result<CsvRecord> ReadLine(std::string_view line, const std::string& where, size_t number) {
  CsvReader reader(line, where, number);
  CsvRecord record, more;
  HOGNOSE_ASSIGN(const bool found, reader.Next(&record));
  if (!found) return CsvRecord{.cells = {""}, .line = number};
  HOGNOSE_ASSIGN(const bool second, reader.Next(&more));
  if (second) {
    return Status::Failed(fmt::format("{}: line {}: got several lines, want one", where, number));
  }
  return record;
}

}  // namespace

Result<RowParser> RowParser::Create(std::string_view header, const std::string& where,
                                    const RowOptions& options) {
  HOGNOSE_ASSIGN(const CsvRecord record, ReadLine(header, where, 1));
  return Create(record, where, options);
}

Result<RowParser> RowParser::Create(const CsvRecord& header, const std::string& where,
                                    const RowOptions& options) {
  RowParser parser;
  parser.where_ = where;
  parser.missing_ = options.missing;
  parser.line_ = header.line;
  for (const std::string& cell : header.cells) parser.header_.emplace_back(Trim(cell));
  HOGNOSE_TRY(CheckHeader(parser.header_, parser.At(header.line)));
  HOGNOSE_TRY(parser.PlaceColumns(options));
  return parser;
}

Status RowParser::PlaceColumns(const RowOptions& options) {
  const std::string where = At(line_);
  names_ = options.columns;
  for (const std::string& name : header_) {
    const auto wanted = std::find(names_.begin(), names_.end(), name);
    if (!options.time.empty() && name == options.time) {
      place_.push_back(kTime);
    } else if (Has(options.ignored, name)) {
      place_.push_back(kIgnored);
    } else if (options.columns.empty()) {
      place_.push_back(names_.size());
      names_.push_back(name);
    } else if (wanted != names_.end()) {
      place_.push_back(static_cast<size_t>(wanted - names_.begin()));
    } else {
      return Status::Failed(fmt::format("{}: got the column {}, want only {}", where,
                                        ShowCell(name), fmt::join(options.columns, ", ")));
    }
  }
  if (!options.time.empty() && !Has(header_, options.time)) {
    return Status::Failed(
        fmt::format("{}: got no column {}, want it as the time", where, ShowCell(options.time)));
  }
  for (const std::string& name : options.columns) {
    if (Has(header_, name)) continue;
    return Status::Failed(fmt::format("{}: got no column {}, want one", where, ShowCell(name)));
  }
  if (names_.empty()) {
    return Status::Failed(fmt::format("{}: got no columns but the time, want some", where));
  }
  return {};
}

Status RowParser::Parse(std::string_view line, std::span<double> row) {
  HOGNOSE_ASSIGN(const CsvRecord record, ReadLine(line, where_, ++line_));
  return Parse(record, row);
}

Status RowParser::Parse(const CsvRecord& record, std::span<double> row) {
  HOGNOSE_CHECK(row.size() == names_.size());
  line_ = record.line;
  if (record.cells.size() != header_.size()) {
    std::string first;
    if (record.cells.size() < header_.size()) {
      first = fmt::format(" (none for column {})", ShowCell(header_[record.cells.size()]));
    }
    return Status::Failed(fmt::format("{}: got {} cells, want {} as in the header{}",
                                      At(record.line), record.cells.size(), header_.size(), first));
  }
  // Kept only if the row is good, so that a corrected row may follow a refused one.
  Time time = time_;
  HOGNOSE_TRY(ParseCells(record, row, &time));
  time_ = time;
  return {};
}

Status RowParser::ParseCells(const CsvRecord& record, std::span<double> row, Time* time) const {
  for (size_t i = 0; i < record.cells.size(); ++i) {
    const std::string& text = record.cells[i];
    if (place_[i] == kIgnored) continue;
    if (place_[i] == kTime) {
      HOGNOSE_TRY(CheckTime(record, text, time));
      continue;
    }
    double& value = row[place_[i]];
    const Cell cell = ParseCell(text, &value);
    if (cell == Cell::kNumber) continue;
    if (cell == Cell::kMissing && missing_) {
      value = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    return Status::Failed(fmt::format("{}: column {}: got {}, want a finite number{}",
                                      At(record.line), ShowCell(header_[i]),
                                      Trim(text).empty() ? "nothing" : ShowCell(text),
                                      cell == Cell::kWrong ? " of float32's range" : ""));
  }
  return {};
}

// Makes `time`, that of the row before, the time in `cell`.
Status RowParser::CheckTime(const CsvRecord& record, std::string_view cell, Time* time) const {
  const auto fail = [&](std::string_view want) {
    return Status::Failed(
        fmt::format("{}: time: got {}, want {}", At(record.line), ShowCell(cell), want));
  };
  double value = 0;
  const bool timestamp = ParseCell(cell, &value) != Cell::kNumber;
  if (timestamp && !ParseTimestamp(cell, &value)) return fail("a number or an ISO 8601 time");
  if (time->value) {
    if (timestamp != time->timestamp) {
      return fail(
          fmt::format("a {} as in line {}", timestamp ? "number" : "timestamp", time->line));
    }
    if (!(value > *time->value)) return fail(fmt::format("a time after line {}'s", time->line));
  }
  *time = {.value = value, .timestamp = timestamp, .line = record.line};
  return {};
}

// Columns of an NPY have names but no line for them.
std::string RowParser::At(size_t line) const {
  return line == 0 ? where_ : fmt::format("{}: line {}", where_, line);
}

}  // namespace hognose::train
