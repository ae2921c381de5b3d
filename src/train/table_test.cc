#include "train/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "io/test_util.h"
#include "train/testing.h"

namespace hognose::train {
namespace {

using io::FailsWith;
using io::TestFolder;
using Values = std::vector<double>;
using Names = std::vector<std::string>;

core::Status Error(std::string_view text, const RowOptions& options = {}) {
  return ParseCsv(text, "x.csv", options).status();
}

TEST(TableTest, ReadsCsv) {
  const auto table = ParseCsv(
      "\xEF\xBB\xBF"
      "a, \"b,1\" ,c\r\n1,\"2\",3\r\n-4.5, 5e1 ,+6\r\n",
      "x.csv", {});
  // A blank before a quote is a part of an unquoted cell.
  EXPECT_TRUE(FailsWith(table.status(), {"x.csv: line 1: got a quote inside"}));
  const auto good = ParseCsv(
      "\xEF\xBB\xBF"
      "a,\"b,1\", c\r\n1,\"2\",3\r\n-4.5, 5e1 ,+6\r\n",
      "x.csv", {});
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->names, (Names{"a", "b,1", "c"}));
  EXPECT_EQ(good->rows, 2u);
  EXPECT_EQ(good->values, (Values{1, 2, 3, -4.5, 50, 6}));
  EXPECT_EQ(good->Where(1), "x.csv: line 3");
  EXPECT_TRUE(good->time.empty());
}

TEST(TableTest, NamesRowAndColumn) {
  EXPECT_TRUE(FailsWith(Error(""), {"x.csv: got an empty file"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n\n"), {"x.csv: got no rows below the header"}));
  EXPECT_TRUE(FailsWith(Error("1,2\n3,4\n"), {"x.csv: line 1: got numbers only, want a header"}));
  EXPECT_TRUE(FailsWith(Error("a,,c\n1,2,3"), {"x.csv: line 1: column 2: got no name"}));
  EXPECT_TRUE(FailsWith(Error("a,b,a\n1,2,3"),
                        {"x.csv: line 1: column 3: got \"a\", want a name that column 1 doesn't"}));
  EXPECT_TRUE(FailsWith(Error("a,\xFF\n1,2"), {"x.csv: line 1: column 2: got a name that isn't"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,2\n3"),
                        {"x.csv: line 3: got 1 cells, want 2", "(none for column \"b\")"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,2,3"), {"x.csv: line 2: got 3 cells, want 2"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,2\n\n3,4"), {"x.csv: line 3: got 1 cells, want 2"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,x\n"), {"x.csv: line 2: column \"b\": got \"x\", want"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,2\n1,\n"), {"line 3: column \"b\": got nothing, want"}));
  EXPECT_TRUE(FailsWith(Error("a,b\nNA,2\n"), {"line 2: column \"a\": got \"NA\", want"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,nan\n"), {"line 2: column \"b\": got \"nan\", want"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,-inf\n", {.missing = true}), {"got \"-inf\", want"}));
  EXPECT_TRUE(FailsWith(Error("a,b\n1,\"2\n"), {"line 2: got a quote that opens a cell"}));
}

TEST(TableTest, MissingCellsBecomeNan) {
  const auto table = ParseCsv("a,b\n1,\nnan,NA\n", "x.csv", {.missing = true});
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table->values[0], 1);
  for (size_t i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(table->values[i]));
  const auto one = ParseCsv("a\n1\n\n2\n\n", "x.csv", {.missing = true});
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->rows, 3u);  // a blank line of one column is a missing cell, at the end it is none
}

TEST(TableTest, TimeIsNoFeatureAndIncreases) {
  const auto numbers = ParseCsv("a,t\n1,0.5\n2,0.75\n", "x.csv", {.time = "t"});
  ASSERT_TRUE(numbers.ok()) << numbers.status().message();
  EXPECT_EQ(numbers->names, Names{"a"});
  EXPECT_EQ(numbers->values, (Values{1, 2}));
  EXPECT_EQ(numbers->time, (Values{0.5, 0.75}));
  const auto stamps =
      ParseCsv("t,a\n1970-01-01T00:00:01Z,1\n1970-01-01 00:01,2", "x.csv", {.time = "t"});
  ASSERT_TRUE(stamps.ok()) << stamps.status().message();
  EXPECT_EQ(stamps->time, (Values{1, 60}));
  const auto error = [](std::string_view rows) {
    return Error("t,a\n" + std::string(rows), {.time = "t", .missing = true});
  };
  EXPECT_TRUE(
      FailsWith(error("1,1\n1,1"), {"x.csv: line 3: time: got \"1\", want a time after l"}));
  EXPECT_TRUE(FailsWith(error("1,1\n0,1"), {"line 3: time: got \"0\", want a time after line 2"}));
  EXPECT_TRUE(FailsWith(error(",1"), {"line 2: time: got \"\", want a number or an ISO 8601"}));
  EXPECT_TRUE(FailsWith(error("nan,1"), {"line 2: time: got \"nan\""}));
  EXPECT_TRUE(
      FailsWith(error("1,1\n1970-01-01,1"), {"line 3: time: ", "want a number as in line"}));
  EXPECT_TRUE(FailsWith(Error("a\n1", {.time = "t"}), {"line 1: got no column \"t\""}));
  EXPECT_TRUE(FailsWith(Error("t\n1", {.time = "t"}), {"line 1: got no columns but the time"}));
}

TEST(TableTest, ReadsNpy) {
  const TestFolder folder;
  const auto read = [&](const std::string& bytes, const RowOptions& options = {}) {
    return ReadTable(folder.Put("x.npy", bytes), DataFormat::kAuto, options);
  };
  for (const auto& bytes : {MakeNpy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6}),
                            MakeNpy<double>("<f8", "(2, 3)", {1, 2, 3, 4, 5, 6}),
                            MakeNpy<int64_t>("<i8", "(2, 3)", {1, 2, 3, 4, 5, 6}),
                            MakeNpy<int32_t>("<i4", "(2, 3)", {1, 2, 3, 4, 5, 6})}) {
    const auto table = read(bytes, {.time = "c1"});
    ASSERT_TRUE(table.ok()) << table.status().message();
    EXPECT_EQ(table->names, (Names{"c0", "c2"}));
    EXPECT_EQ(table->values, (Values{1, 3, 4, 6}));
    EXPECT_EQ(table->time, (Values{2, 5}));
    EXPECT_TRUE(table->Where(1).ends_with("x.npy: row 1"));
  }
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::string nan = MakeNpy<double>("<f8", "(2, 2)", {1, 2, 3, kNan});
  EXPECT_TRUE(FailsWith(read(nan).status(), {"/x.npy: row 1: column \"c1\": got nan, want"}));
  EXPECT_TRUE(std::isnan(read(nan, {.missing = true})->values[3]));
  EXPECT_FALSE(read(nan, {.time = "c1", .missing = true}).ok());
  EXPECT_TRUE(
      FailsWith(read(MakeNpy<double>("<f8", "(1, 1)", {-HUGE_VAL}), {.missing = true}).status(),
                {"row 0: column \"c0\": got -inf"}));
  EXPECT_TRUE(
      FailsWith(read(MakeNpy<double>("<f8", "(2, 2)", {1, 2, 3, 2}), {.time = "c1"}).status(),
                {"/x.npy: row 1: time: got 2, want more than 2 of row 0"}));
  EXPECT_TRUE(FailsWith(read(nan, {.time = "t", .missing = true}).status(),
                        {"/x.npy: got no column \"t\""}));
  EXPECT_TRUE(FailsWith(read(MakeNpy<double>("<f8", "(2,)", {1, 2})).status(),
                        {"/x.npy: got f64 [2], want [rows, columns]"}));
  EXPECT_TRUE(FailsWith(read(MakeNpy<double>("<f8", "(0, 2)", {})).status(), {"got f64 [0, 2]"}));
}

TEST(TableTest, FindsFormatsAndColumns) {
  const TestFolder folder;
  const auto path = folder.Put("data", "a,b\n1,2\n");
  const auto table = ReadTable(path, DataFormat::kAuto, {});
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(ReadTable(path, DataFormat::kIds, {}).status().code(), core::StatusCode::kUsage);
  EXPECT_TRUE(FailsWith(ReadTable(path, DataFormat::kNpy, {}).status(), {"got no NPY file"}));
  EXPECT_EQ(*FindColumns(*table, Names{"b", "a"}, "--target"), (std::vector<size_t>{1, 0}));
  EXPECT_TRUE(FailsWith(FindColumns(*table, Names{"z"}, "--target").status(),
                        {"--target: got \"z\", want a column of ", "data: a, b"}));
}

TEST(RowParserTest, FindsColumnsByName) {
  auto parser = RowParser::Create("y,b,a,t\r\n", "standard input",
                                  {.time = "t", .columns = {"a", "b"}, .ignored = {"y", "z"}});
  ASSERT_TRUE(parser.ok()) << parser.status().message();
  Values row(2);
  ASSERT_TRUE(parser->Parse("text,2,1,10\n", row).ok());
  EXPECT_EQ(row, (Values{1, 2}));
  EXPECT_EQ(parser->time(), 10);
  // The next row may follow a refused one, with its time.
  EXPECT_TRUE(FailsWith(parser->Parse("0,x,1,11", row),
                        {"standard input: line 3: column \"b\": got \"x\""}));
  EXPECT_EQ(parser->time(), 10);
  EXPECT_TRUE(FailsWith(parser->Parse("", row), {"standard input: line 4: got 1 cells, want 4"}));
  EXPECT_TRUE(FailsWith(parser->Parse("0,1,2,3\n4,5,6,7\n", row), {"line 5: got several lines"}));
  EXPECT_TRUE(FailsWith(parser->Parse("0,\"1,2,3", row), {"line 6: got a quote that opens"}));
  EXPECT_TRUE(parser->Parse("0,4,3,11", row).ok());
  EXPECT_EQ(row, (Values{3, 4}));
  EXPECT_TRUE(FailsWith(parser->Parse("0,4,3,11", row), {"line 8: time: ", "after line 7's"}));
}

TEST(RowParserTest, RefusesOtherColumns) {
  const auto error = [](std::string_view header) {
    return RowParser::Create(header, "-", {.columns = {"a", "b"}}).status();
  };
  EXPECT_TRUE(FailsWith(error("a"), {"-: line 1: got no column \"b\", want one"}));
  EXPECT_TRUE(FailsWith(error("a,b,c"), {"-: line 1: got the column \"c\", want only a, b"}));
  EXPECT_TRUE(FailsWith(error(""), {"-: line 1: column 1: got no name"}));
}

}  // namespace
}  // namespace hognose::train
