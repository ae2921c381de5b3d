#include "train/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "core/value.h"
#include "io/json.h"

namespace hognose::train {

using core::Result;
using core::Status;

CsvReader::CsvReader(std::string_view text, std::string where, size_t line)
    : text_(text.substr(0, text.find_last_not_of("\r\n") + 1)),
      where_(std::move(where)),
      line_(line) {
  if (line == 1 && text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
}

Result<bool> CsvReader::Next(CsvRecord* record) {
  if (at_ >= text_.size()) return false;
  record->line = line_;
  // The strings of the last record are written over, so that a file needs few allocations.
  for (size_t count = 1;; ++count) {
    if (record->cells.size() < count) record->cells.emplace_back();
    HOGNOSE_TRY(ReadCell(&record->cells[count - 1]));
    if (text_.substr(at_).starts_with(',')) {
      ++at_;
      continue;
    }
    record->cells.resize(count);
    break;
  }
  at_ += text_.substr(at_).starts_with('\r') ? 2 : 1;
  ++line_;
  return true;
}

// Leaves at_ at a comma, at the end of the line or of the text.
Status CsvReader::ReadCell(std::string* cell) {
  if (text_.substr(at_).starts_with('"')) return ReadQuoted(cell);
  size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
  if (end > at_ && end < text_.size() && text_[end] == '\n' && text_[end - 1] == '\r') --end;
  cell->assign(text_, at_, end - at_);
  at_ = end;
  if (cell->find('"') == std::string::npos) return {};
  return Status::Failed(fmt::format("{}: line {}: got a quote inside {}, want quotes around a cell",
                                    where_, line_, ShowCell(*cell)));
}

Status CsvReader::ReadQuoted(std::string* cell) {
  const size_t first_line = line_;
  cell->clear();
  for (++at_;;) {
    const size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) {
      return Status::Failed(
          fmt::format("{}: line {}: got a quote that opens a cell, want one that closes it", where_,
                      first_line));
    }
    const std::string_view part = text_.substr(at_, quote - at_);
    cell->append(part);
    line_ += static_cast<size_t>(std::count(part.begin(), part.end(), '\n'));
    at_ = quote + 1;
    if (!text_.substr(at_).starts_with('"')) break;
    cell->push_back('"');
    ++at_;
  }
  const std::string_view rest = text_.substr(at_);
  if (rest.empty() || rest[0] == ',' || rest[0] == '\n' || rest.starts_with("\r\n")) return {};
  return Status::Failed(fmt::format(
      "{}: line {}: got text behind a closing quote, want a comma or the end of the line", where_,
      line_));
}

std::string ShowCell(std::string_view cell) {
  constexpr size_t kMost = 40;
  std::string_view start = cell.substr(0, kMost);
  if (start.size() < cell.size()) start = start.substr(0, io::ValidUtf8Prefix(start));
  return io::ToJson(core::Value(start));
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

bool InRange(double value) { return std::abs(value) <= std::numeric_limits<float>::max(); }

Cell ParseCell(std::string_view text, double* value) {
  text = Trim(text);
  const auto is_word = [&](std::string_view word) {
    return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
  };
  if (text.empty() || is_word("nan") || is_word("na")) return Cell::kMissing;
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, *value);
  if (next != end || error == std::errc::invalid_argument) return Cell::kWrong;
  if (error == std::errc::result_out_of_range) {
    // from_chars doesn't say on which side.
    const size_t exponent = text.find_first_of("eE");
    const size_t digit = text.find_first_not_of("-");
    const bool tiny = exponent != std::string_view::npos
                          ? text.substr(exponent + 1).starts_with('-')
                          : text[digit] == '0' || text[digit] == '.';
    if (!tiny) return Cell::kWrong;
    *value = 0;
  }
  return InRange(*value) ? Cell::kNumber : Cell::kWrong;
}

namespace {

// Takes exactly `digits` digits from the front of `text`.
bool TakeDigits(std::string_view* text, size_t digits, int* value) {
  if (text->size() < digits) return false;
  *value = 0;
  for (const char c : text->substr(0, digits)) {
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + (c - '0');
  }
  text->remove_prefix(digits);
  return true;
}

bool Take(std::string_view* text, char c) {
  if (!text->starts_with(c)) return false;
  text->remove_prefix(1);
  return true;
}

// Days from 1970-01-01; false for a day that isn't there.
bool TakeDate(std::string_view* text, int64_t* days) {
  int year = 0, month = 0, day = 0;
  if (!TakeDigits(text, 4, &year) || !Take(text, '-') || !TakeDigits(text, 2, &month) ||
      !Take(text, '-') || !TakeDigits(text, 2, &day)) {
    return false;
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return false;
  *days = std::chrono::sys_days(date).time_since_epoch().count();
  return true;
}

// HH:MM[:SS[.fraction]]
bool TakeClock(std::string_view* text, double* seconds) {
  int hour = 0, minute = 0, second = 0;
  if (!TakeDigits(text, 2, &hour) || !Take(text, ':') || !TakeDigits(text, 2, &minute)) {
    return false;
  }
  if (Take(text, ':') && !TakeDigits(text, 2, &second)) return false;
  if (hour > 23 || minute > 59 || second > 59) return false;
  double fraction = 0;
  if (text->starts_with('.')) {
    const size_t end = std::min(text->find_first_not_of("0123456789", 1), text->size());
    if (end == 1) return false;
    std::from_chars(text->data(), text->data() + end, fraction);
    text->remove_prefix(end);
  }
  *seconds = hour * 3600 + minute * 60 + second + fraction;
  return true;
}

// Z, +HH, +HHMM, +HH:MM or nothing.
bool TakeZone(std::string_view* text, double* seconds) {
  *seconds = 0;
  if (text->empty() || Take(text, 'Z')) return true;
  const double sign = text->starts_with('-') ? -1 : 1;
  if (!Take(text, '+') && !Take(text, '-')) return false;
  int hour = 0, minute = 0;
  if (!TakeDigits(text, 2, &hour)) return false;
  if (!text->empty()) {
    Take(text, ':');
    if (!TakeDigits(text, 2, &minute)) return false;
  }
  *seconds = sign * (hour * 3600 + minute * 60);
  return hour < 24 && minute < 60;
}

}  // namespace

bool ParseTimestamp(std::string_view text, double* seconds) {
  text = Trim(text);
  int64_t days = 0;
  double clock = 0, zone = 0;
  if (!TakeDate(&text, &days)) return false;
  if (Take(&text, 'T') || Take(&text, ' ')) {
    if (!TakeClock(&text, &clock) || !TakeZone(&text, &zone)) return false;
  }
  if (!text.empty()) return false;
  *seconds = static_cast<double>(days) * 86400 + clock - zone;
  return true;
}

}  // namespace hognose::train
