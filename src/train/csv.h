// CSV: records and cells. RFC 4180: commas, quotes that double inside quotes, LF or CRLF; a UTF-8
// BOM is skipped. Independent of the locale.
//
// Refused, since each is a file that was cut or written by other rules: a quote inside a cell that
// doesn't begin with one, text behind a closing quote, a quote that nothing closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace hognose::train {

struct CsvRecord {
  std::vector<std::string> cells;
  size_t line = 0;  // where it begins, from 1 on
};

class CsvReader {
 public:
  // `text` must outlive the reader; its first line is number `line`.
  CsvReader(std::string_view text, std::string where, size_t line = 1);

  // The next record; false at the end. Blank lines at the end of the text are no records; others
  // have one empty cell. Errors: "<where>: line 3: ...".
  core::Result<bool> Next(CsvRecord* record);

 private:
  core::Status ReadCell(std::string* cell);
  core::Status ReadQuoted(std::string* cell);

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
  size_t line_ = 1;
};

// A cell, or its start, in quotes and on one line: for messages.
std::string ShowCell(std::string_view cell);
std::string_view Trim(std::string_view text);  // without blanks and tabs around it

// What is in a cell that should hold a number. Missing is nothing, NaN and NA (in any case).
// Infinity and what float32 doesn't hold is wrong: no feature has such a value, and sums of squares
// stay finite in double. Numbers that are too small for double are 0.
enum class Cell : uint8_t { kNumber, kMissing, kWrong };
Cell ParseCell(std::string_view text, double* value);

// Whether a double has a value that ParseCell would take.
bool InRange(double value);

// Seconds since 1970 of an ISO 8601 time: 2024-05-01, 2024-05-01T10:20 or 2024-05-01 10:20:30.25,
// then nothing (UTC), Z, +02, +0200 or +02:00. False if it is none.
bool ParseTimestamp(std::string_view text, double* seconds);

}  // namespace hognose::train
