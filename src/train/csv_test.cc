#include "train/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "io/test_util.h"

namespace hognose::train {
namespace {

using io::FailsWith;
using Records = std::vector<std::vector<std::string>>;

core::Status Read(std::string_view text, Records* records, std::vector<size_t>* lines = nullptr) {
  CsvReader reader(text, "x.csv");
  CsvRecord record;
  for (;;) {
    HOGNOSE_ASSIGN(const bool more, reader.Next(&record));
    if (!more) return {};
    records->push_back(record.cells);
    if (lines != nullptr) lines->push_back(record.line);
  }
}

core::Status Error(std::string_view text) {
  Records records;
  return Read(text, &records);
}

TEST(CsvTest, SplitsRecordsAndCells) {
  const struct {
    const char* text;
    Records want;
  } cases[] = {
      {"", {}},
      {"\r\n\n", {}},
      {"a", {{"a"}}},
      {"a,b\n1,2\n", {{"a", "b"}, {"1", "2"}}},
      {"a,b\r\n1,2\r\n\r\n", {{"a", "b"}, {"1", "2"}}},
      {"\xEF\xBB\xBF"
       "a,b",
       {{"a", "b"}}},
      {"a,\n,\n", {{"a", ""}, {"", ""}}},
      {",", {{"", ""}}},
      {"a\n\nb", {{"a"}, {""}, {"b"}}},
      {"\"a,\"\"b\"\"\",c\n", {{"a,\"b\"", "c"}}},
      {"\"\",\"\"\r\n\"x\"\r\n", {{"", ""}, {"x"}}},
      {"\"two\nlines\",b\nc,d", {{"two\nlines", "b"}, {"c", "d"}}},
      {"a\rb", {{"a\rb"}}},
      {"1,2,3\n4\n5,6", {{"1", "2", "3"}, {"4"}, {"5", "6"}}},
  };
  for (const auto& c : cases) {
    Records got;
    const auto status = Read(c.text, &got);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(got, c.want) << c.text;
  }
}

TEST(CsvTest, CountsLines) {
  Records records;
  std::vector<size_t> lines;
  ASSERT_TRUE(Read("h\r\n\"1\n2\"\n\n3", &records, &lines).ok());
  EXPECT_EQ(lines, (std::vector<size_t>{1, 2, 4, 5}));
}

TEST(CsvTest, RefusesBrokenQuotes) {
  EXPECT_TRUE(FailsWith(Error("a\nb\"c,d"), {"x.csv: line 2: got a quote inside \"b\\\"c\""}));
  EXPECT_TRUE(FailsWith(Error("a\n\"b\" ,d"), {"x.csv: line 2: got text behind a closing quote"}));
  EXPECT_TRUE(FailsWith(Error("a\n1,\"b\nc"), {"x.csv: line 2: got a quote that opens a cell"}));
  EXPECT_TRUE(FailsWith(Error("\""), {"x.csv: line 1: got a quote that opens"}));
}

TEST(CsvTest, ShowsCellsOnOneLine) {
  EXPECT_EQ(ShowCell("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(ShowCell(std::string(100, 'x')), '"' + std::string(40, 'x') + '"');
}

TEST(ParseCellTest, ReadsNumbers) {
  const struct {
    const char* text;
    double want;
  } cases[] = {{"1", 1},
               {" -2.5\t", -2.5},
               {"+3e2", 300},
               {".5", 0.5},
               {"-0", -0.0},
               {"3.4e38", 3.4e38},
               {"007", 7},
               {"1e-320", 1e-320},
               {"1e-999", 0},
               {"-12.5e-999", 0},
               {"1E5", 1e5},
               {"0.1", 0.1},
               {"9007199254740993", 9007199254740992.0}};
  for (const auto& c : cases) {
    double got = 99;
    EXPECT_EQ(ParseCell(c.text, &got), Cell::kNumber) << c.text;
    EXPECT_EQ(got, c.want) << c.text;
  }
  double tiny = 99;
  EXPECT_EQ(ParseCell("0." + std::string(400, '0') + "1", &tiny), Cell::kNumber);
  EXPECT_EQ(tiny, 0);
}

TEST(ParseCellTest, TellsMissingFromWrong) {
  double value = 0;
  for (const char* text : {"", "  ", "nan", "NaN", "NA", "na", " NA "}) {
    EXPECT_EQ(ParseCell(text, &value), Cell::kMissing) << text;
  }
  for (const char* text : {"a",
                           "1a",
                           "1 2",
                           "1,5",
                           "inf",
                           "-Infinity",
                           "-nan",
                           "+nan",
                           "nana",
                           "0x10",
                           "1e39",
                           "-1e39",
                           "1e999",
                           "--1",
                           "+-1",
                           "+",
                           "-",
                           ".",
                           "1_000",
                           "\xC2\xA0"
                           "1"}) {
    EXPECT_EQ(ParseCell(text, &value), Cell::kWrong) << text;
  }
  EXPECT_EQ(ParseCell(std::string(400, '9'), &value), Cell::kWrong);
}

TEST(ParseTimestampTest, ReadsIso8601) {
  const struct {
    const char* text;
    double want;
  } cases[] = {{"1970-01-01", 0},
               {"1970-01-01T00:00", 0},
               {"1969-12-31T23:59:59Z", -1},
               {"2024-02-29 12:34:56.25", 1709210096.25},
               {"2024-03-01T00:00:00+02:00", 1709244000},
               {"2024-03-01T00:00:00-0130", 1709256600},
               {"2024-03-01T00:00+02", 1709244000},
               {"2000-03-01", 951868800},
               {"1900-03-01", -2203891200},
               {" 2038-01-19T03:14:08Z ", 2147483648}};
  for (const auto& c : cases) {
    double got = 0.5;
    EXPECT_TRUE(ParseTimestamp(c.text, &got)) << c.text;
    EXPECT_EQ(got, c.want) << c.text;
  }
}

TEST(ParseTimestampTest, RefusesTheRest) {
  double value = 0;
  for (const char* text : {"",
                           "5",
                           "2024",
                           "2024-13-01",
                           "2023-02-29",
                           "1900-02-29",
                           "2024-00-10",
                           "2024-01-00",
                           "2024-01-01T",
                           "2024-01-01T24:00",
                           "2024-01-01T10:60",
                           "2024-01-01T10:00:60",
                           "2024-01-01T10",
                           "2024-01-01T10:00:00.",
                           "2024-01-01T10:00+",
                           "2024-01-01T10:00+25",
                           "2024-01-01T10:00+02:",
                           "2024-01-01Z",
                           "2024-1-1",
                           "2024-01-01T10:00 x",
                           "01/02/2024"}) {
    EXPECT_FALSE(ParseTimestamp(text, &value)) << text;
  }
}

}  // namespace
}  // namespace hognose::train
