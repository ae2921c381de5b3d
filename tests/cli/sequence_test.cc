// hognose train --task regression|classification and hognose predict.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "core/rng.h"
#include "io/npy.h"
#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

using Args = std::vector<std::string>;

// y[t] = 0.6 x[t-1] - 0.3 x[t-3], in units of its own; `noise` has nothing to do with it.
std::string Series(size_t rows, uint64_t seed) {
  core::Rng rng(seed);
  std::vector<double> x;
  std::string text = "when,noise,y,x\n";
  for (size_t t = 0; t < rows; ++t) {
    x.push_back(rng.Uniform(-1.0, 1.0));
    const double y = (t >= 1 ? 0.6 * x[t - 1] : 0.0) - (t >= 3 ? 0.3 * x[t - 3] : 0.0);
    text += fmt::format("2024-01-01T{:02}:{:02}:{:02},{},{},{}\n", t / 3600, t / 60 % 60, t % 60,
                        rng.Uniform(5.0, 6.0), 1000.0 + 50.0 * y, x[t]);
  }
  return text;
}

// The class is how many of the last three x were above zero.
std::string Labels(size_t rows, uint64_t seed) {
  core::Rng rng(seed);
  std::vector<int> up(2, 0);
  std::string text = "x,count\n";
  for (size_t t = 0; t < rows; ++t) {
    const double x = rng.Uniform(-1.0, 1.0);
    up.push_back(x > 0.0);
    text += fmt::format("{},{}\n", x, up[t] + up[t + 1] + up[t + 2]);
  }
  return text;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines, size_t begin, size_t end) {
  std::string text = lines[0];
  for (size_t i = begin; i < end; ++i) text += lines[i];
  return text;
}

const Args kSmall = {"--arch",         "mamba2", "--d-model",         "16", "--layers",     "1",
                     "--d-state",      "8",      "--head-dim",        "8",  "--batch-size", "8",
                     "--lr",           "0.01",   "--sequence-length", "32", "-t",           "2",
                     "--weight-decay", "0"};

Args Train(const std::string& task, const std::string& data, const std::string& out, Args more) {
  Args args = {"train", "--task", task, "--data", data, "--out", out};
  args.insert(args.end(), kSmall.begin(), kSmall.end());
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class SequenceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder;
    data_ = folder_->Put("x.csv", Series(1500, 1));
    fresh_ = folder_->Put("fresh.csv", Series(90, 2));
    model_ = *folder_ / "model";
    report_ = new core::Value(Json(Hognose(
        Train("regression", data_, model_,
              {"--target", "y", "--time", "when", "--steps", "400", "--json", "--seed", "3"}))));
  }
  static void TearDownTestSuite() {
    delete report_;
    delete folder_;
  }
  static Outcome Predict(Args more, std::string input = {}) {
    Args args = {"predict", model_};
    args.insert(args.end(), more.begin(), more.end());
    return Hognose(args, std::move(input));
  }

  static inline TestFolder* folder_ = nullptr;
  static inline core::Value* report_ = nullptr;
  static inline std::string data_, fresh_, model_;
};

// The held-out loss of saying the mean is the variance, 1.
TEST_F(SequenceTest, LearnsTheSeries) {
  EXPECT_LT(Number(*report_, "held_out_loss"), 0.02);
  EXPECT_EQ(Keys(*report_),
            "out steps loss parameters trained_parameters rows_per_second memory_bytes "
            "skipped_steps held_out_loss");
  const auto config = io::ParseJson(Slurp(model_ + "/config.json"), "config");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(Text(*config, "task"), "regression");
  EXPECT_EQ(Text(*config, "time"), "when");
}

TEST_F(SequenceTest, PredictsInTheUnitsOfTheData) {
  const Outcome o = Predict({"--data", fresh_});
  ASSERT_TRUE(Done(o));
  const auto want = LinesOf(Slurp(fresh_)), got = LinesOf(o.out);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(got[0], "when,y\n");
  double squares = 0.0;
  for (size_t i = 1; i < got.size(); ++i) {
    const size_t comma = got[i].find(',');
    EXPECT_EQ(got[i].substr(0, comma), want[i].substr(0, comma));  // the time as it came
    const size_t noise = want[i].find(',', comma + 1);
    const double error = std::stod(got[i].substr(comma + 1)) - std::stod(want[i].substr(noise + 1));
    squares += error * error;
  }
  // The variance of 50 (0.6 x - 0.3 x') is 2500 (0.36 + 0.09) / 3 = 375.
  EXPECT_LT(squares / static_cast<double>(got.size() - 1), 0.03 * 375);
}

TEST_F(SequenceTest, WholeStreamedSplitAndNpyAreTheSameBytes) {
  const auto rows = LinesOf(Slurp(fresh_));
  const std::string whole = Predict({"--data", fresh_}).out;
  EXPECT_EQ(Predict({"--data", "-"}, Slurp(fresh_)).out, whole);
  EXPECT_EQ(Predict({"--data", fresh_, "-t", "3"}).out, whole);
  const std::string out = *folder_ / "out.csv", state = *folder_ / "state";
  const core::Value report = Json(Predict({"--data", fresh_, "--out", out, "--json"}));
  EXPECT_EQ(Number(report, "rows"), 90.0);
  EXPECT_EQ(Slurp(out), whole);
  for (const size_t split : {2, 41, 66, 90}) {
    const std::string a = folder_->Put("a.csv", Join(rows, 1, split));
    const std::string b = folder_->Put("b.csv", Join(rows, split, rows.size()));
    const Outcome first = Predict({"--data", a, "--state-out", state});
    const Outcome second = Predict({"--data", b, "--state-in", state, "--state-out", state});
    ASSERT_TRUE(Done(first));
    ASSERT_TRUE(Done(second));
    EXPECT_EQ(first.out + second.out.substr(second.out.find('\n') + 1), whole) << split;
  }
  const core::Value facts = Json(Hognose({"inspect", state, "--json"}));
  EXPECT_EQ(Number(facts, "position"), 90.0);
  // Other order of columns, quotes, CRLF, no target, blank lines at the end.
  std::string other = "x,when,noise\r\n";
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto& r = rows[i];
    const size_t c1 = r.find(','), c2 = r.find(',', c1 + 1), c3 = r.find(',', c2 + 1);
    other += fmt::format("\"{}\",{},{}\r\n", r.substr(c3 + 1, r.size() - c3 - 2), r.substr(0, c1),
                         r.substr(c1 + 1, c2 - c1 - 1));
  }
  other += "\r\n\r\n";
  EXPECT_EQ(Predict({"--data", "-"}, other).out, whole);
  EXPECT_EQ(Predict({"--data", folder_->Put("other.csv", other)}).out, whole);
}

// Each row is answered before the next one comes.
TEST_F(SequenceTest, AStreamIsAnsweredAtOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto rows = LinesOf(Slurp(fresh_));
  size_t sent = 0;
  const auto send = [&](size_t i) {
    EXPECT_EQ(write(ends[1], rows[i].data(), rows[i].size()), static_cast<ssize_t>(rows[i].size()));
  };
  send(sent++);
  const std::string state = *folder_ / "interrupted";
  const Outcome o = Launch({.args = {"predict", model_, "--data", "-", "--state-out", state},
                            .input_fd = ends[0],
                            .interrupt = [&](const Outcome& so_far) {
                              const auto lines = static_cast<size_t>(
                                  std::count(so_far.out.begin(), so_far.out.end(), '\n'));
                              if (lines == sent && sent < 6) send(sent++);
                              return lines == 6;
                            }});
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(o.code, 130) << Describe(o);
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 6);
  // What was promised is there.
  EXPECT_EQ(Number(Json(Hognose({"inspect", state, "--json"})), "position"), 5.0);
}

TEST_F(SequenceTest, BadRowsAreNamed) {
  const std::string header = "when,noise,x\n", good = "2024-01-01,5.5,0.1\n";
  const auto fails = [&](const std::string& csv, std::string_view middle) {
    EXPECT_TRUE(Fails(Predict({"--data", "-"}, csv), 1, "standard input", middle)) << csv;
    const std::string path = folder_->Put("bad.csv", csv), out = *folder_ / "kept.csv";
    folder_->Put("kept.csv", "old");
    EXPECT_TRUE(Fails(Predict({"--data", path, "--out", out}), 1, path, middle)) << csv;
    EXPECT_EQ(Slurp(out), "old");
  };
  fails("", "empty file");
  fails("when,x\n", "line 1: got no column \"noise\"");
  fails("noise,x\n", "line 1: got no column \"when\"");
  fails("when,noise,x,more\n", "line 1: got the column \"more\"");
  fails(header + good + "2024-01-02,,1\n", "line 3: column \"noise\": got nothing");
  fails(header + good + "2024-01-02,5,many\n", "line 3: column \"x\": got \"many\"");
  fails(header + good + "2024-01-02,5,1e99\n", "line 3: column \"x\"");
  fails(header + good + "2024-01-02,5\n", "line 3: got 2 cells, want 3");
  fails(header + good + good, "line 3: time");
  fails(header + good + "\n2024-01-02,5,1\n", "line 3");
  fails(header + good + "2024-01-02,\"5,1\n", "line 3");
  fails(header + good + "2024-01-02,3e38,-3e38\n", "line 3: got a prediction that isn't finite");
  // The rows before a wrong one are answered.
  const Outcome o = Predict({"--data", "-"}, header + good + "2024-01-02,5,x\n");
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 2);
}

TEST_F(SequenceTest, BadArgumentsAndStates) {
  EXPECT_TRUE(Fails(Hognose({"predict"}), 2, "MODEL: got none"));
  EXPECT_TRUE(Fails(Predict({}), 2, "--data: got none"));
  EXPECT_TRUE(Fails(Predict({"--data", fresh_, "--json"}), 2, "--json: got no --out"));
  EXPECT_TRUE(Fails(Predict({"--data", *folder_ / "none.csv"}), 1, *folder_ / "none.csv"));
  EXPECT_TRUE(Fails(Hognose({"predict", kDemo, "--data", fresh_}), 1,
                    kDemo + "/config.json: architectures", "hognose run"));
  for (const std::string command : {"run", "score", "bench"}) {
    Args args = {command, model_};
    if (command == "run") args.insert(args.end(), {"-p", "x"});
    if (command == "score") args.insert(args.end(), {"--ids", folder_->Put("ids", "1 2")});
    EXPECT_TRUE(Fails(Hognose(args), 1, model_ + "/config.json: architectures", "hognose predict"));
  }
  const std::string state = *folder_ / "good_state";
  ASSERT_TRUE(Done(Predict({"--data", fresh_, "--state-out", state})));
  std::string bytes = Slurp(state);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  const std::string damaged = folder_->Put("damaged", bytes);
  EXPECT_TRUE(Fails(Predict({"--data", fresh_, "--state-in", damaged}), 1, damaged, "checksum"));
  const std::string lm = *folder_ / "lm_state";
  ASSERT_TRUE(Done(Hognose({"run", kDemo, "-p", "a", "-n", "1", "--state-out", lm})));
  EXPECT_TRUE(Fails(Predict({"--data", fresh_, "--state-in", lm}), 1, lm, "model"));
  EXPECT_TRUE(Fails(Hognose({"run", kDemo, "-n", "1", "--state-in", state}), 1, state, "model"));
}

TEST_F(SequenceTest, InspectSaysWhatItIs) {
  const core::Value facts = Json(Hognose({"inspect", model_, "--json"}));
  EXPECT_EQ(Text(facts, "task"), "regression");
  EXPECT_EQ(Text(facts, "features"), "noise, x");
  EXPECT_EQ(Text(facts, "targets"), "y");
  EXPECT_EQ(Text(facts, "architecture"), "mamba2");
  EXPECT_EQ(Number(facts, "width"), 16.0);
  EXPECT_NE(Hognose({"inspect", model_}).out.find("features"), std::string::npos);
}

TEST_F(SequenceTest, ResumedIsTheSameBitForBit) {
  const Args flags = {"--target", "y", "--time", "when", "--steps", "12", "--save-every", "5"};
  const std::string whole = *folder_ / "whole", log = *folder_ / "log", cut = *folder_ / "cut";
  ASSERT_TRUE(Done(Hognose(Train("regression", data_, whole, flags))));
  // Interrupted after some steps, then gone on with, on other threads.
  Args args = Train("regression", data_, cut, flags);
  args.insert(args.end(), {"--log", log, "-t", "1"});
  Launch({.args = args, .terminal = true, .interrupt = [](const Outcome& o) {
            return o.err.find("left") != std::string::npos;
          }});
  args.push_back("--resume");
  const Outcome resumed = Hognose(args);
  if (resumed.err.find("nothing is left to resume") == std::string::npos) {
    ASSERT_TRUE(Done(resumed));
  }
  EXPECT_EQ(Slurp(whole + "/model.safetensors"), Slurp(cut + "/model.safetensors"));
  args.insert(args.end(), {"--validation", "0.2"});
  EXPECT_TRUE(Fails(Hognose(args), 1, cut, "validation"));
  args.insert(args.end(), {"--validation", "0.1", "--loss", "huber"});
  EXPECT_TRUE(Fails(Hognose(args), 2, "--loss: got huber, want mse"));
}

// Columns by name, normalisation of the model: the loss goes on from where it was.
TEST_F(SequenceTest, AModelGoesOnWithOtherData) {
  const std::string out = *folder_ / "further";
  // Another order of columns and other means.
  const auto rows = LinesOf(Series(600, 8));
  std::string text = "x,y,noise\n";
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto& r = rows[i];
    const size_t c1 = r.find(','), c2 = r.find(',', c1 + 1), c3 = r.find(',', c2 + 1);
    text +=
        r.substr(c3 + 1, r.size() - c3 - 2) + r.substr(c2, c3 - c2) + r.substr(c1, c2 - c1) + "\n";
  }
  const std::string data = folder_->Put("further.csv", text);
  const Args base = {
      "train",  "--task", "regression", "--data", data,   "--out", out,
      "--init", model_,   "--steps",    "2",      "--lr", "1e-5",  "--sequence-length",
      "32",     "--json"};
  // The time is a column of the model's data.
  EXPECT_TRUE(Fails(Hognose(base), 1, data, "got no column \"when\""));
  std::string timed;
  for (const auto& line : LinesOf(text)) {
    timed += timed.empty() ? "when," : fmt::format("{},", timed.size());
    timed += line;
  }
  folder_->Put("further.csv", timed);
  const Outcome o = Hognose(base);
  // Training windows begin without the three rows before them, the held-out rows only once.
  EXPECT_LT(Number(Json(o), "held_out_loss"), 0.05) << Describe(o);
  const auto before = io::ParseJson(Slurp(model_ + "/config.json"), "a"),
             after = io::ParseJson(Slurp(out + "/config.json"), "b");
  for (const char* name : {"feature_mean", "feature_scale", "target_mean", "target_scale"}) {
    EXPECT_EQ(io::ToJson(*before->Find(name)), io::ToJson(*after->Find(name)));
  }
  Args wrong = base;
  wrong.insert(wrong.end(), {"--target", "x", "--force"});
  EXPECT_TRUE(Fails(Hognose(wrong), 2, "--target: got x, want y"));
  wrong = base;
  wrong[2] = "classification";
  EXPECT_TRUE(Fails(Hognose(wrong), 2, "--task: got classification, want regression"));
  wrong = base;
  wrong[8] = kDemo;
  EXPECT_TRUE(Fails(Hognose(wrong), 1, kDemo + "/config.json: architectures", "hognose run"));
}

TEST_F(SequenceTest, LearnsClasses) {
  const std::string data = folder_->Put("labels.csv", Labels(1500, 4)), out = *folder_ / "classes";
  const core::Value report = Json(Hognose(
      Train("classification", data, out, {"--target", "count", "--steps", "400", "--json"})));
  EXPECT_LT(Number(report, "held_out_loss"), 0.25);  // log 4 = 1.39 knows nothing
  const std::string test = Labels(200, 5);
  const Outcome o = Hognose({"predict", out, "--data", "-"}, test);
  ASSERT_TRUE(Done(o));
  const auto rows = LinesOf(o.out), want = LinesOf(test);
  EXPECT_EQ(rows[0], "count,count_p0,count_p1,count_p2,count_p3\n");
  ASSERT_EQ(rows.size(), want.size());
  size_t right = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    right += rows[i][0] == want[i][want[i].find(',') + 1];
    double sum = 0.0;
    for (size_t at = rows[i].find(','); at != std::string::npos; at = rows[i].find(',', at + 1)) {
      sum += std::stod(rows[i].substr(at + 1));
    }
    EXPECT_NEAR(sum, 1.0, 4 * 0x1p-24);  // four probabilities, each rounded once
  }
  EXPECT_GT(right, 180u);
}

TEST_F(SequenceTest, NumbersOfAnNpyHaveColumns) {
  std::vector<float> values;
  core::Rng rng(6);
  for (size_t i = 0; i < 300 * 3; ++i) values.push_back(static_cast<float>(rng.Uniform()));
  const std::string data = *folder_ / "x.npy", out = *folder_ / "npy";
  ASSERT_TRUE(io::WriteNpy(data, 300, 3, [&](io::NpyRowSink sink) {
                for (size_t r = 0; r < 300; ++r) sink(std::span(values).subspan(r * 3, 3));
                return core::Status();
              }).ok());
  ASSERT_TRUE(Done(Hognose(Train("regression", data, out,
                                 {"--target", "c2,c0", "--steps", "2", "--loss", "huber",
                                  "--huber-delta", "0.5", "--validation", "0"}))));
  const std::string npy = Hognose({"predict", out, "--data", data}).out;
  std::string csv = "c1\n";
  for (size_t r = 0; r < 300; ++r) csv += fmt::format("{}\n", double{values[r * 3 + 1]});
  EXPECT_EQ(Hognose({"predict", out, "--data", "-"}, csv).out, npy);
  EXPECT_TRUE(npy.starts_with("c2,c0\n"));
}

TEST_F(SequenceTest, BadTraining) {
  const std::string out = *folder_ / "never";
  const auto usage = [&](const std::string& task, Args more, std::string_view begin) {
    EXPECT_TRUE(Fails(Hognose(Train(task, data_, out, more)), 2, begin)) << begin;
  };
  usage("regression", {}, "--target: got none");
  usage("regression", {"--target", "y", "--classes", "3"}, "--classes: got it");
  usage("regression", {"--target", "y", "--eval", data_}, "--eval: got it");
  usage("regression", {"--target", "y,y"}, "--target: got \"y,y\"");
  usage("regression", {"--target", "y", "--validation", "1"}, "--validation: got");
  usage("classification", {"--target", "y,x"}, "--target: got several");
  usage("classification", {"--target", "y", "--loss", "huber"}, "--loss: got it");
  usage("lm", {"--target", "y"}, "--target: got it with --task lm");
  const auto fails = [&](const std::string& task, const std::string& data, Args more,
                         std::string_view begin, std::string_view middle) {
    EXPECT_TRUE(Fails(Hognose(Train(task, data, out, more)), 1, begin, middle)) << middle;
  };
  fails("regression", data_, {"--target", "z", "--time", "when"}, "--target: got \"z\"", "x.csv");
  fails("regression", data_, {"--target", "y"}, data_, "column \"when\"");
  fails("regression", data_, {"--target", "y,x,noise", "--time", "when"}, data_, "want features");
  fails("classification", data_, {"--target", "y", "--time", "when"}, data_, "want a class");
  const std::string few = folder_->Put("few.csv", Series(30, 1));
  fails("regression", few, {"--target", "y", "--time", "when"}, few,
        "got 27 rows to train on, want at least 32");
  const std::string hole = folder_->Put("hole.csv", Series(60, 1) + "2024-02-01,5.5,,0.5\n");
  fails("regression", hole, {"--target", "y", "--time", "when"}, hole, "line 62: column \"y\"");
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_TRUE(Done(
      Hognose(Train("regression", hole, out,
                    {"--target", "y", "--time", "when", "--missing", "drop", "--steps", "1"}))));
}

}  // namespace
}  // namespace hognose::cli_test
