#include "train/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "io/file.h"
#include "io/npy.h"

namespace hognose::train {
namespace {

using core::Result;
using core::Status;

double Element(const core::TensorView& tensor, size_t i) {
  switch (tensor.dtype) {
    case core::DType::kF32:
      return static_cast<const float*>(tensor.data)[i];
    case core::DType::kF64:
      return static_cast<const double*>(tensor.data)[i];
    case core::DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(tensor.data)[i]);
    default:
      HOGNOSE_DCHECK(tensor.dtype == core::DType::kI32);
      return static_cast<const int32_t*>(tensor.data)[i];
  }
}

// The header that an NPY has not, so that names are found in one way.
CsvRecord MakeHeader(size_t columns) {
  CsvRecord header{.cells = {}, .line = 0};
  for (size_t i = 0; i < columns; ++i) header.cells.push_back(fmt::format("c{}", i));
  return header;
}

// Where the cells of the array go: place[i] for column i, or the column of time.
struct Columns {
  std::vector<std::string> names;
  std::vector<std::optional<size_t>> place;
  std::optional<size_t> time;
};

Result<Columns> PickColumns(size_t count, const std::string& path, const RowOptions& options) {
  const CsvRecord header = MakeHeader(count);
  HOGNOSE_ASSIGN(const RowParser parser, RowParser::Create(header, path, options));
  Columns columns{.names = parser.names(), .place = {}, .time = std::nullopt};
  for (size_t i = 0; i < count; ++i) {
    const auto& name = header.cells[i];
    const auto at = std::find(columns.names.begin(), columns.names.end(), name);
    if (name == options.time) columns.time = i;
    columns.place.emplace_back();
    if (at != columns.names.end()) columns.place.back() = at - columns.names.begin();
  }
  return columns;
}

Status FillFromNpy(const core::TensorView& tensor, const Columns& columns, bool missing,
                   Table* table) {
  const size_t count = columns.place.size();
  for (size_t r = 0; r < table->rows; ++r) {
    table->numbers.push_back(r);
    for (size_t c = 0; c < count; ++c) {
      const double value = Element(tensor, r * count + c);
      const bool is_time = columns.time == c;
      if (!is_time && !columns.place[c]) continue;
      if (!InRange(value) && !(missing && !is_time && std::isnan(value))) {
        return Status::Failed(fmt::format(
            "{}: row {}: column \"c{}\": got {}, want a finite number of float32's range",
            table->path, r, c, value));
      }
      if (!is_time) {
        table->values[r * table->columns() + *columns.place[c]] = value;
        continue;
      }
      if (r > 0 && !(value > table->time.back())) {
        return Status::Failed(fmt::format("{}: row {}: time: got {}, want more than {} of row {}",
                                          table->path, r, value, table->time.back(), r - 1));
      }
      table->time.push_back(value);
    }
  }
  return {};
}

Result<Table> ReadNpyTable(const std::string& path, const RowOptions& options) {
  HOGNOSE_ASSIGN(const io::NpyArray array, io::OpenNpy(path));
  const core::TensorView& tensor = array.tensor;
  if (tensor.rank != 2 || tensor.shape[0] == 0 || tensor.shape[1] == 0) {
    return Status::Failed(fmt::format("{}: got {}, want [rows, columns] with some of both", path,
                                      core::ToString(tensor)));
  }
  HOGNOSE_ASSIGN(const Columns columns, PickColumns(tensor.shape[1], path, options));
  Table table;
  table.path = path;
  table.names = columns.names;
  table.rows = tensor.shape[0];
  table.values.resize(table.rows * table.columns());
  HOGNOSE_TRY(FillFromNpy(tensor, columns, options.missing, &table));
  return table;
}

}  // namespace

std::string Table::Where(size_t row) const {
  return fmt::format("{}: {} {}", path, has_lines ? "line" : "row", numbers[row]);
}

Result<Table> ParseCsv(std::string_view text, const std::string& where, const RowOptions& options) {
  CsvReader reader(text, where);
  CsvRecord record;
  HOGNOSE_ASSIGN(const bool has_header, reader.Next(&record));
  if (!has_header) return Status::Failed(where + ": got an empty file, want a header and rows");
  HOGNOSE_ASSIGN(RowParser parser, RowParser::Create(record, where, options));
  Table table;
  table.path = where;
  table.names = parser.names();
  table.has_lines = true;
  for (;;) {
    HOGNOSE_ASSIGN(const bool more, reader.Next(&record));
    if (!more) break;
    table.values.resize((table.rows + 1) * table.columns());
    HOGNOSE_TRY(parser.Parse(
        record, std::span(table.values).subspan(table.rows * table.columns(), table.columns())));
    if (parser.time()) table.time.push_back(*parser.time());
    table.numbers.push_back(record.line);
    ++table.rows;
  }
  if (table.rows == 0) return Status::Failed(where + ": got no rows below the header, want some");
  return table;
}

Result<Table> ReadTable(const std::string& path, DataFormat format, const RowOptions& options) {
  if (format != DataFormat::kAuto && format != DataFormat::kCsv && format != DataFormat::kNpy) {
    return Status::Usage("--data-format: got a format of tokens, want csv or npy for a table");
  }
  HOGNOSE_ASSIGN(const io::MappedFile file, io::MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const bool npy = io::LooksLikeNpy(path, text);
  if (format == DataFormat::kNpy || (format == DataFormat::kAuto && npy)) {
    return ReadNpyTable(path, options);
  }
  return ParseCsv(text, path, options);
}

Result<std::vector<size_t>> FindColumns(const Table& table, std::span<const std::string> names,
                                        std::string_view flag) {
  std::vector<size_t> columns;
  for (const std::string& name : names) {
    const auto at = std::find(table.names.begin(), table.names.end(), name);
    if (at == table.names.end()) {
      return Status::Failed(fmt::format("{}: got {}, want a column of {}: {}", flag, ShowCell(name),
                                        table.path, fmt::join(table.names, ", ")));
    }
    columns.push_back(static_cast<size_t>(at - table.names.begin()));
  }
  return columns;
}

}  // namespace hognose::train
