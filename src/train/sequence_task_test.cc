#include "train/sequence_task.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "io/test_util.h"
#include "tests/support/compare.h"
#include "train/new_model.h"
#include "train/parameters.h"

namespace hognose::train {
namespace {

using io::FailsWith;
using testing::kEpsF32;

constexpr size_t kRows = 100, kTraining = 80;

// Columns a, b (features) and y: sums of the rows before, and a class where `labels`.
Table MakeTable(bool labels = false) {
  Table table{.path = "x.csv", .names = {"a", "y", "b"}, .values = {}, .time = {}, .numbers = {}};
  core::Rng rng(9);
  double last = 0.0;
  for (size_t r = 0; r < kRows; ++r) {
    const double a = rng.Uniform(-3.0, 5.0), b = rng.Uniform(100.0, 200.0);
    const double y = labels ? static_cast<double>(r % 3) : 1000.0 + 10.0 * last + a;
    table.values.insert(table.values.end(), {a, y, b});
    table.numbers.push_back(r + 2);
    last = a;
  }
  table.rows = kRows;
  table.has_lines = true;
  return table;
}

const Split kSplit = {.training = kTraining, .validation = kRows - kTraining};
const std::vector<size_t> kTarget = {1};

TEST(SequenceDataTest, NothingOfTheValidationRowsLeaks) {
  const Table table = MakeTable();
  Table other = table;
  for (size_t i = kTraining * 3; i < other.values.size(); ++i) other.values[i] = 1e6 + i;
  const auto config = MeasureSequence(table, kSplit, {.targets = kTarget});
  const auto same = MeasureSequence(other, kSplit, {.targets = kTarget});
  ASSERT_TRUE(config.ok() && same.ok());
  EXPECT_EQ(config->features, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config->feature_mean, same->feature_mean);
  EXPECT_EQ(config->feature_scale, same->feature_scale);
  EXPECT_EQ(config->target_mean, same->target_mean);
  EXPECT_EQ(config->target_scale, same->target_scale);
  const auto data = SequenceData::Create(table, kSplit, *config);
  const auto changed = SequenceData::Create(other, kSplit, *config);
  EXPECT_TRUE(testing::SameBits(testing::Flatten(data->Features(0, kTraining)),
                                testing::Flatten(changed->Features(0, kTraining))));
  EXPECT_TRUE(testing::SameBits(testing::Flatten(data->Targets(0, kTraining).values),
                                testing::Flatten(changed->Targets(0, kTraining).values)));
  // A class that only the validation rows have is none.
  Table labels = MakeTable(true);
  labels.values[(kRows - 1) * 3 + 1] = 7;
  const auto classes =
      MeasureSequence(labels, kSplit, {.classification = true, .targets = kTarget});
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(classes->classes, 3u);
  EXPECT_TRUE(FailsWith(SequenceData::Create(labels, kSplit, *classes).status(),
                        {"x.csv: line 101: column \"y\": got 7, want a class from 0 to 2"}));
}

// Each normalised value is rounded once from double: mean 0 and deviation 1 to eps.
TEST(SequenceDataTest, NormalisesEveryColumn) {
  const Table table = MakeTable();
  const auto config = MeasureSequence(table, kSplit, {.targets = kTarget});
  const auto data = SequenceData::Create(table, kSplit, *config);
  for (const auto& columns : {data->Features(0, kTraining), data->Targets(0, kTraining).values}) {
    for (size_t c = 0; c < columns.cols; ++c) {
      double sum = 0.0, squares = 0.0;
      for (size_t r = 0; r < kTraining; ++r) {
        sum += columns.Row(r)[c];
        squares += columns.Row(r)[c] * columns.Row(r)[c];
      }
      EXPECT_NEAR(sum / kTraining, 0.0, 2 * kEpsF32);
      EXPECT_NEAR(squares / kTraining, 1.0, 2 * kEpsF32);
    }
  }
}

TEST(SequenceDataTest, RefusesWhatIsNoClass) {
  for (const double wrong : {-1.0, 0.5, 65536.0, 1e300}) {
    Table table = MakeTable(true);
    table.values[4] = wrong;
    const auto config =
        MeasureSequence(table, kSplit, {.classification = true, .targets = kTarget});
    EXPECT_TRUE(FailsWith(config.status(), {"x.csv: line 3: column \"y\": got", "want a class"}));
  }
  Table zero = MakeTable(true);
  for (size_t r = 0; r < kRows; ++r) zero.values[r * 3 + 1] = 0;
  EXPECT_TRUE(FailsWith(
      MeasureSequence(zero, kSplit, {.classification = true, .targets = kTarget}).status(),
      {"class 0 only"}));
}

TEST(SequenceDataTest, ARareClassIsNoOutlier) {
  Table table{.path = "x", .names = {"a", "y"}, .values = {}, .time = {}, .numbers = {}};
  for (size_t r = 0; r < 1000; ++r) {
    table.values.insert(table.values.end(), {r % 7 * 1.0, r == 500 ? 1.0 : 0.0});
    table.numbers.push_back(r);
  }
  table.rows = 1000;
  Table again = table;
  EXPECT_FALSE(CleanTable(&table, Missing::kRefuse, 0.1, kTarget).ok());
  EXPECT_TRUE(CleanTable(&again, Missing::kRefuse, 0.1, kTarget, kTarget).ok());
}

// A task over a small new model and what it stands on.
class Tasks {
 public:
  Tasks(const std::string& architecture, size_t length, bool labels = false,
        models::Checkpointing checkpointing = models::Checkpointing::kNone)
      : pool_(2) {
    const Table table = MakeTable(labels);
    const auto sequence =
        MeasureSequence(table, kSplit, {.classification = labels, .targets = kTarget});
    config_ = *MakeConfig(
        {.architecture = architecture, .width = 8, .layers = 2, .states = 4, .head_dim = 4});
    for (const auto& field : sequence->Fields()) config_ = With(config_, {field});
    fresh_ =
        std::move(*InitialTensors(config_, "config", 3, SequenceSizes{2, sequence->outputs()}));
    parameters_.emplace(std::move(*Parameters::Create(fresh_.tensors, "new", {})));
    data_.emplace(std::move(*SequenceData::Create(table, kSplit, *sequence)));
    auto task =
        SequenceTask::Create({pool_}, config_, "config", *data_,
                             {.batch = 2, .length = length, .checkpointing = checkpointing});
    EXPECT_TRUE(task.ok()) << task.status().message();
    task_ = std::move(*task);
    Bind();
  }
  void Bind() {
    const models::GradientMap gradients = parameters_->gradient_map();
    const auto status = task_->Bind(parameters_->tensors(), {&gradients, 1});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  double Loss() { return task_->Row(0, 0, 0.0f, 0); }

  core::ThreadPool pool_;
  core::Value config_;
  NewTensors fresh_;
  std::optional<Parameters> parameters_;
  std::optional<SequenceData> data_;
  std::unique_ptr<SequenceTask> task_;
};

// Along the gradient the loss rises by its norm. Central differences of the f32 loss: their
// truncation is a third of what halving the step changes; the loss's rounding, some 300 eps of it
// (two blocks with sums of up to 16 terms, the norms and the exponentials), divides by the step.
TEST(SequenceTaskTest, TheLossRisesAlongTheGradient) {
  for (const std::string architecture : {"mamba", "mamba2"}) {
    for (const bool labels : {false, true}) {
      Tasks t(architecture, 16, labels);
      const core::Vec<float> p = t.parameters_->values(), g = t.parameters_->gradients();
      std::fill_n(g.data, g.size, 0.0f);
      const double loss = t.task_->Row(0, 0, 1.0f, 0);
      const std::vector<float> start(p.data, p.data + p.size), direction(g.data, g.data + g.size);
      double squares = 0.0;
      for (const float d : direction) squares += double{d} * d;
      const double norm = std::sqrt(squares);
      const auto at = [&](double step) {
        for (size_t i = 0; i < p.size; ++i) {
          p[i] = static_cast<float>(start[i] + step * direction[i] / norm);
        }
        t.Bind();
        return t.Loss();
      };
      constexpr double kStep = 1.0 / 128;
      const double fine = (at(kStep) - at(-kStep)) / (2 * kStep);
      const double coarse = (at(2 * kStep) - at(-2 * kStep)) / (4 * kStep);
      EXPECT_NEAR(fine, norm, std::abs(coarse - fine) + 300 * kEpsF32 * loss / kStep);
      EXPECT_NEAR(fine / norm, 1.0, 0.05);  // and that bound says something
    }
  }
}

TEST(SequenceTaskTest, CheckpointingChangesNoBit) {
  std::vector<float> gradients[2];
  for (const bool layer : {false, true}) {
    Tasks t("mamba2", 16, false,
            layer ? models::Checkpointing::kLayer : models::Checkpointing::kNone);
    const core::Vec<float> g = t.parameters_->gradients();
    std::fill_n(g.data, g.size, 0.0f);
    t.task_->Row(0, 1, 1.0f, 0);
    gradients[layer].assign(g.data, g.data + g.size);
  }
  EXPECT_TRUE(testing::SameBits(gradients[0], gradients[1]));
}

// The state goes from window to window, so their length changes nothing but roundings: a scan by
// chunks agrees to (16 + 2 chunks + exponent) eps a term, here below 100 eps in each of two blocks.
TEST(SequenceTaskTest, EvaluationCarriesTheState) {
  for (const std::string architecture : {"mamba", "mamba2"}) {
    const double whole = Tasks(architecture, 20).task_->Evaluate();
    for (const size_t length : {1, 7}) {
      EXPECT_NEAR(Tasks(architecture, length).task_->Evaluate(), whole, 2 * 100 * kEpsF32 * whole);
    }
  }
}

TEST(SequenceTaskTest, RefusesTooFewRows) {
  const Table table = MakeTable();
  const auto config = MeasureSequence(table, kSplit, {.targets = kTarget});
  const auto data = SequenceData::Create(table, kSplit, *config);
  core::ThreadPool pool(1);
  const core::Value none;
  EXPECT_TRUE(SequenceTask::Create({pool}, none, "config", *data, {.length = 80}).ok());
  EXPECT_TRUE(
      FailsWith(SequenceTask::Create({pool}, none, "config", *data, {.length = 81}).status(),
                {"x.csv: got 80 rows to train on, want at least 81"}));
}

}  // namespace
}  // namespace hognose::train
