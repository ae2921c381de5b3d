#include "train/clean_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "io/test_util.h"

namespace hognose::train {
namespace {

using io::FailsWith;
using Counts = std::vector<size_t>;
using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Table MakeTable(size_t columns, const Values& values) {
  Table table{.path = "x.csv", .names = {}, .values = values, .time = {}, .numbers = {}};
  for (size_t c = 0; c < columns; ++c) table.names.push_back(std::string(1, 'a' + c));
  table.rows = values.size() / columns;
  table.has_lines = true;
  for (size_t r = 0; r < table.rows; ++r) {
    table.numbers.push_back(r + 2);
    table.time.push_back(static_cast<double>(r));
  }
  return table;
}

TEST(SplitByTimeTest, TheLastRowsValidate) {
  const Table table = MakeTable(1, Values(10));
  EXPECT_EQ(SplitByTime(table, 0)->training, 10u);
  EXPECT_EQ(SplitByTime(table, 0.25)->training, 8u);
  EXPECT_EQ(SplitByTime(table, 0.25)->validation, 2u);
  EXPECT_EQ(SplitByTime(table, 0.01)->validation, 1u);
  EXPECT_TRUE(FailsWith(SplitByTime(MakeTable(1, {1}), 0.5).status(), {"x.csv: got 1 rows, want"}));
}

// Each step of Welford's recurrence rounds the mean and the sum of squares a few times by eps of
// their own size; a mean far from 0 costs the deviation mean / deviation of them: over n rows at
// most about 4 n eps (1 + |mean| / deviation), here with long double sums in two passes as oracle.
TEST(MeasureTest, AgreesWithTwoPasses) {
  core::Rng rng(3);
  for (const double offset : {0.0, 1.0, -1e3}) {
    Values values;
    for (size_t i = 0; i < 2 * 101; ++i) values.push_back(offset + rng.Uniform(-1, 1));
    values[6] = kNan;
    const Table table = MakeTable(2, values);
    long double sum = 0, squares = 0;
    for (size_t r = 0; r < 90; ++r) sum += r == 3 ? 0 : values[2 * r];
    const long double mean = sum / 89;
    for (size_t r = 0; r < 90; ++r) {
      if (r != 3) squares += (values[2 * r] - mean) * (values[2 * r] - mean);
    }
    const auto deviation = static_cast<double>(std::sqrt(squares / 89));
    const ColumnStats stats = Measure(table, 0, 90);
    const double eps = std::numeric_limits<double>::epsilon();
    const double tolerance = 4 * 90 * eps * (1 + std::abs(offset) / deviation);
    EXPECT_EQ(stats.count, 89u);
    EXPECT_NEAR(stats.mean, static_cast<double>(mean), tolerance * deviation);
    EXPECT_NEAR(stats.deviation, deviation, tolerance * deviation);
  }
}

TEST(NormalizationTest, SeesTrainingRowsOnly) {
  // 0.1 has no exact sum: its deviation is 0 all the same.
  const Table table = MakeTable(3, {1, 0.1, 7, 3, 0.1, 7, 100, 5, 7});
  const Split split = {.training = 2, .validation = 1};
  const auto norm = MeasureNormalization(table, Counts{1, 0}, split);
  EXPECT_EQ(norm.mean, (Values{0.1, 2}));
  EXPECT_EQ(norm.scale, (Values{1, 1}));
  std::vector<float> out(2);
  norm.Apply(Values{5, 100}, out);
  EXPECT_EQ(out, (std::vector<float>{static_cast<float>(5 - 0.1), 98}));
  Values back(2);
  norm.Invert(std::vector<float>{0, -2}, back);
  EXPECT_EQ(back, (Values{0.1, 0}));
}

// 0, 1, 0, 1, ...: mean and deviation near 0.5, so that the limit lies near 5.5.
Table Waves(size_t rows) {
  Values values;
  for (size_t r = 0; r < rows; ++r) values.insert(values.end(), {double(r % 2), 3.0});
  return MakeTable(2, values);
}

TEST(OutliersTest, LieTenDeviationsAway) {
  Table table = Waves(300);
  table.values[2 * 250] = 5.4;
  table.values[2 * 260] = 5.6;  // in the validation rows: measured against the training rows
  table.values[2 * 270] = -4.6;
  table.values[2 * 280] = kNan;
  table.values[2 * 290 + 1] = 9;  // its column is constant in the training rows
  const Outliers outliers = FindOutliers(table, {.training = 200, .validation = 100});
  EXPECT_EQ(outliers.counts, (Counts{2, 0}));
  EXPECT_EQ(outliers.cells, (Counts{520, 540}));
}

TEST(CleanTableTest, RefusesByDefault) {
  Table table = Waves(200);
  EXPECT_TRUE(CleanTable(&table, Missing::kRefuse, 0.1, Counts{1}).ok());
  table.values[2 * 150] = 1e6;
  EXPECT_TRUE(FailsWith(CleanTable(&table, Missing::kRefuse, 0.1, Counts{1}).status(),
                        {"x.csv: line 152: column \"a\": got 1000000, want within 10 standard"}));
  table.values[2 * 140] = kNan;
  EXPECT_TRUE(FailsWith(CleanTable(&table, Missing::kRefuse, 0.1, Counts{1}).status(),
                        {"x.csv: line 142: column \"a\": got nothing"}));
}

TEST(CleanTableTest, DropsRows) {
  Table table = Waves(200);
  table.values[2 * 150] = 1e6;
  table.values[2 * 150 + 1] = kNan;
  table.values[2 * 199] = kNan;
  const auto report = CleanTable(&table, Missing::kDrop, 0.25, Counts{1});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->missing, (Counts{1, 1}));
  EXPECT_EQ(report->outliers, (Counts{1, 0}));
  EXPECT_EQ(report->dropped_rows, 2u);
  EXPECT_EQ(table.rows, 198u);
  EXPECT_EQ(table.values.size(), 396u);
  EXPECT_EQ(table.numbers.size(), 198u);
  EXPECT_EQ(table.Where(150), "x.csv: line 153");
  EXPECT_EQ(table.time[150], 151);
  EXPECT_EQ(report->split.validation, 49u);
  EXPECT_EQ(report->split.training, 149u);
  EXPECT_EQ(Describe(*report, table),
            "2 missing cells (a: 1, b: 1), 1 outlier (a: 1), 2 rows dropped");
}

TEST(CleanTableTest, FillsWithTheMeanOfTheTrainingRows) {
  // b is the target. 8 rows, the last 2 validate; row 1 loses its target.
  Table table = MakeTable(2, {1, 0, 2, kNan, kNan, 0, 4, 0, 4, 0, 3, 0, kNan, 0, 5, 0});
  const auto report = CleanTable(&table, Missing::kMean, 0.3, Counts{1});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->dropped_rows, 1u);
  EXPECT_EQ(report->filled_cells, 2u);
  EXPECT_EQ(report->split.training, 5u);
  EXPECT_EQ(table.values, (Values{1, 0, 3, 0, 4, 0, 4, 0, 3, 0, 3, 0, 5, 0}));
  EXPECT_EQ(MeasureNormalization(table, Counts{0}, report->split).mean, Values{3});
  EXPECT_EQ(Describe(*report, table),
            "3 missing cells (a: 2, b: 1), 0 outliers, 1 rows dropped, 2 cells filled with the "
            "mean");
}

TEST(CleanTableTest, FailsWhenNothingIsLeft) {
  Table all = MakeTable(2, {1, kNan, kNan, 2});
  EXPECT_TRUE(FailsWith(CleanTable(&all, Missing::kDrop, 0, Counts{}).status(),
                        {"x.csv: got a missing cell in each of 2 rows"}));
  Table column = MakeTable(2, {1, kNan, 2, kNan, 3, 4});
  EXPECT_TRUE(FailsWith(CleanTable(&column, Missing::kMean, 0.3, Counts{0}).status(),
                        {"x.csv: column \"b\": got no number in the training rows"}));
}

}  // namespace
}  // namespace hognose::train
