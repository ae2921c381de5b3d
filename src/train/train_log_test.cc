#include "train/train_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io/json.h"
#include "io/test_util.h"

namespace hognose::train {
namespace {

using io::FailsWith;
using io::Slurp;
using io::TestFolder;

LogEntry Entry(size_t step) {
  return {.step = step,
          .loss = 4.5 - static_cast<double>(step),
          .grad_norm = 0.1,
          .lr = 1e-3,
          .tokens_per_second = 812.5,
          .memory_bytes = 123456,
          .scale = 65536};
}

std::string Lines(size_t begin, size_t end) {
  std::string text;
  for (size_t step = begin; step < end; ++step) text += ToLine(Entry(step));
  return text;
}

TEST(TrainLogTest, PrintsOneObjectALine) {
  const auto value = io::ParseJson(ToLine(Entry(2)), "line");
  ASSERT_TRUE(value.ok()) << value.status().message();
  std::string keys;
  for (const auto& [key, unused] : *value->AsObject()) keys += key + " ";
  EXPECT_EQ(keys, "step loss grad_norm lr tokens_per_second memory_bytes scale ");
  EXPECT_EQ(ToLine(Entry(2)).find('\n'), ToLine(Entry(2)).size() - 1);
  const auto back = ParseLogLine(ToLine(Entry(2)), "line");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(ToLine(*back), ToLine(Entry(2)));
}

TEST(TrainLogTest, WhatIsNotFiniteIsNull) {
  LogEntry entry = Entry(0);
  entry.loss = std::numeric_limits<double>::quiet_NaN();
  entry.grad_norm = HUGE_VAL;
  const std::string line = ToLine(entry);
  EXPECT_EQ(line.find("NaN"), std::string::npos) << line;
  EXPECT_EQ(line.find("Infinity"), std::string::npos) << line;
  const auto back = ParseLogLine(line, "line");
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(std::isnan(back->loss) && std::isnan(back->grad_norm));
}

TEST(TrainLogTest, ANewRunEmptiesTheFile) {
  const TestFolder folder;
  const std::string path = folder.Put("log", "old\n");
  auto log = TrainLog::Create(path);
  ASSERT_TRUE(log.ok()) << log.status().message();
  EXPECT_EQ(Slurp(path), "");
  TrainLog moved = std::move(*log);
  for (size_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(moved.Write(Entry(step)).ok());
    EXPECT_EQ(Slurp(path), Lines(0, step + 1));  // at once
  }
}

TEST(TrainLogTest, ResumingDropsStepsOfTheKilledRun) {
  const TestFolder folder;
  for (const std::string& tail : {std::string(), std::string("{\"step\": 5, \"lo")}) {
    for (const size_t step : {0, 3, 5, 9}) {
      const std::string path = folder.Put("log", Lines(0, 5) + tail);
      std::vector<LogEntry> kept;
      auto log = TrainLog::Resume(path, step, &kept);
      ASSERT_TRUE(log.ok()) << log.status().message();
      EXPECT_EQ(kept.size(), std::min<size_t>(step, 5));
      if (!kept.empty()) {
        EXPECT_EQ(kept.back().loss, Entry(kept.size() - 1).loss);
      }
      EXPECT_EQ(Slurp(path), Lines(0, std::min<size_t>(step, 5)));
      ASSERT_TRUE(log->Write(Entry(step)).ok());
      EXPECT_EQ(Slurp(path), Lines(0, std::min<size_t>(step, 5)) + ToLine(Entry(step)));
    }
  }
}

TEST(TrainLogTest, ResumesWithoutAFile) {
  const TestFolder folder;
  auto log = TrainLog::Resume(folder / "new", 7);
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_TRUE(log->Write(Entry(7)).ok());
  EXPECT_EQ(Slurp(folder / "new"), Lines(7, 8));
}

TEST(TrainLogTest, RefusesAnotherFile) {
  const TestFolder folder;
  const auto error = [&](const std::string& line) {
    const std::string path = folder.Put("log", Lines(0, 1) + line + "\n");
    const auto status = TrainLog::Resume(path, 1).status();
    EXPECT_EQ(Slurp(path), Lines(0, 1) + line + "\n");  // nothing is lost
    return status;
  };
  for (const char* line : {"text", "[]", "{}", "{\"step\": 1.5}", "{\"step\": -1}", ""}) {
    EXPECT_TRUE(FailsWith(error(line), {"/log: line 2: got no entry of a training log"})) << line;
  }
}

TEST(TrainLogTest, SaysWhyItCannotWrite) {
  const TestFolder folder;
  EXPECT_TRUE(FailsWith(TrainLog::Create(folder / "none/log").status(),
                        {"none/log: could not write: No such file"}));
  auto full = TrainLog::Resume("/dev/full", 3);
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_TRUE(FailsWith(full->Write(Entry(0)), {"/dev/full: could not write: No space left"}));
}

}  // namespace
}  // namespace hognose::train
