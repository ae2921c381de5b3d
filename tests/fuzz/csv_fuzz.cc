// A table that is read is whole, its numbers are of float32's range, its time increases; printed
// again it reads back the same; its rows read one by one are the same rows.
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "train/table.h"

namespace {

using hognose::train::ParseCsv;
using hognose::train::RowOptions;
using hognose::train::RowParser;
using hognose::train::Table;

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::string Quote(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string Print(const Table& table) {
  std::string text;
  for (const auto& name : table.names) text += Quote(name) + ",";
  text.back() = '\n';
  for (size_t i = 0; i < table.values.size(); ++i) {
    const bool last = i % table.columns() == table.columns() - 1;
    text += fmt::format("{}{}", table.values[i], last ? "\r\n" : ",");
  }
  return text;
}

void CheckRows(const std::string& text, const Table& table) {
  const auto again = ParseCsv(text, "fuzz", {.missing = true});
  HOGNOSE_CHECK(again.ok() && again->names == table.names && again->rows == table.rows);
  const size_t header = text.find("\"\n") == std::string::npos ? 0 : text.find("\"\n") + 1;
  auto parser = RowParser::Create(std::string_view(text).substr(0, header), "fuzz",
                                  {.columns = table.names, .missing = true});
  // A name may hold the end of a line, which ends a line of a stream.
  const bool stream = parser.ok();
  std::vector<double> row(table.columns());
  size_t at = header + 1;
  for (size_t r = 0; r < table.rows; ++r) {
    const size_t end = text.find('\n', at);
    if (stream) {
      HOGNOSE_CHECK(parser->Parse(std::string_view(text).substr(at, end - at), row).ok());
    }
    at = end + 1;
    for (size_t c = 0; c < row.size(); ++c) {
      HOGNOSE_CHECK(Same(again->row(r)[c], table.row(r)[c]));
      if (stream) HOGNOSE_CHECK(Same(row[c], table.row(r)[c]));
    }
  }
}

void Check(std::string_view text, const RowOptions& options) {
  const auto table = ParseCsv(text, "fuzz", options);
  if (!table.ok()) {
    const std::string message = table.status().message();
    HOGNOSE_CHECK(message.starts_with("fuzz: ") && message.find('\n') == std::string::npos);
    return;
  }
  HOGNOSE_CHECK(table->rows > 0 && table->columns() > 0);
  HOGNOSE_CHECK(table->values.size() == table->rows * table->columns());
  HOGNOSE_CHECK(table->numbers.size() == table->rows);
  HOGNOSE_CHECK(table->time.size() == (options.time.empty() ? 0 : table->rows));
  for (const double value : table->values) {
    HOGNOSE_CHECK(hognose::train::InRange(value) || (options.missing && std::isnan(value)));
  }
  for (size_t i = 1; i < table->time.size(); ++i) {
    HOGNOSE_CHECK(table->time[i] > table->time[i - 1]);
  }
  // Without its time, a header may be left with numbers only.
  if (options.missing && options.time.empty()) CheckRows(Print(*table), *table);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Check(text, {});
  Check(text, {.missing = true});
  Check(text, {.time = "time", .missing = true});
  return 0;
}
