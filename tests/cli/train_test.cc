// hognose train: what it reads, what it writes, and that it resumes as if it had never stopped.
#include <chrono>
#include <cmath>
#include <map>

#include "tests/cli/train_util.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;

double ScoreNll(const std::string& model, const std::string& ids) {
  return Number(Json(Hognose({"score", model, "--ids", ids, "--activations", "f32", "-t", "1"})),
                "nll");
}

// Scores of the windows that an evaluation takes, put together.
double WindowNll(const TestFolder& folder, const std::string& model,
                 const std::vector<int64_t>& ids, size_t length) {
  double sum = 0.0;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += length) {
    const size_t count = std::min(length, ids.size() - 1 - begin);
    const std::string window =
        folder.Put("window", JoinIds({ids.begin() + static_cast<ptrdiff_t>(begin),
                                      ids.begin() + static_cast<ptrdiff_t>(begin + count + 1)}));
    sum += ScoreNll(model, window) * static_cast<double>(count);
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// Both compute every product in f32, by other kernels: errors of some eps in logits below 16.
constexpr double kSameModel = 2e-5;

TEST_F(TrainTest, ANewModelIsAModel) {
  for (const std::string arch : {"mamba2", "mamba"}) {
    Remove();
    const Outcome o = Train({"--arch", arch, "--dt-rank", "3", "--log", log_});
    ASSERT_TRUE(Done(o));
    EXPECT_TRUE(o.out.starts_with("step 5: loss ")) << o.out;
    EXPECT_TRUE(o.out.ends_with(", " + out_ + " written\n")) << o.out;
    EXPECT_NE(o.err.find(" trained (100.00 %)"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find(" tokens/s, "), std::string::npos) << o.err;
    std::string names;
    for (const auto& [name, bytes] : Contents(out_)) names += name + " ";
    EXPECT_EQ(names, "config.json loss.svg model.safetensors training_state.safetensors ");
    EXPECT_TRUE(Done(Hognose({"inspect", out_})));
    EXPECT_GT(ScoreNll(out_, data_), 0.0);
    EXPECT_EQ(ReadLog(log_).size(), 5u);
  }
}

// Widths that are no multiple of anything.
TEST_F(TrainTest, AnyWidth) {
  for (const Arguments& sizes :
       {Arguments{"--head-dim", "16", "--expand", "3"},
        {"--d-model", "5", "--head-dim", "1"},
        {"--d-model", "7", "--head-dim", "7", "--d-state", "3", "--conv-width", "2"},
        {"--d-model", "12", "--groups", "3", "--conv-width", "5"},
        {"--arch", "mamba", "--d-model", "5", "--d-state", "3", "--conv-width", "2"},
        {"--arch", "mamba", "--d-model", "1", "--expand", "1", "--d-state", "1"}}) {
    Remove();
    ASSERT_TRUE(Done(Train(sizes))) << sizes[1];
    EXPECT_GT(ScoreNll(out_, data_), 0.0);
  }
}

TEST_F(TrainTest, TheLogIsAsPromised) {
  ASSERT_TRUE(
      Done(Train({"--log", log_, "--warmup", "2", "--lr", "0.01", "--schedule", "constant"})));
  const auto lines = ReadLog(log_);
  ASSERT_EQ(lines.size(), 5u);
  for (size_t step = 0; step < lines.size(); ++step) {
    const core::Value& line = lines[step];
    EXPECT_EQ(Keys(line), "step loss grad_norm lr tokens_per_second memory_bytes scale");
    EXPECT_EQ(Number(line, "step"), static_cast<double>(step));
    EXPECT_EQ(Number(line, "lr"), step == 0 ? 0.005 : 0.01);
    EXPECT_NEAR(Number(line, "loss"), std::log(48.0), 2.0);
    EXPECT_GT(Number(line, "grad_norm"), 0.0);
    EXPECT_GT(Number(line, "tokens_per_second"), 0.0);
    EXPECT_GT(Number(line, "memory_bytes"), 1e6);
    EXPECT_EQ(Number(line, "scale"), 1.0);
  }
  // A new run begins the log anew, and may keep it in its folder.
  const std::string inside = out_ + "/log.jsonl";
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Done(Train({"--log", inside, "--force", "--gradients", out_ + "/gradients"})));
    EXPECT_EQ(ReadLog(inside).size(), 5u);
    EXPECT_TRUE(fs::exists(out_ + "/gradients"));
  }
}

TEST_F(TrainTest, JsonHoldsEverything) {
  const std::string ids = folder_.Put("held-out", "1 2 3 4 5 6");
  const Outcome o = Train({"--json", "--eval", ids});
  const core::Value report = Json(o);
  EXPECT_EQ(Keys(report),
            "out steps loss parameters trained_parameters tokens_per_second memory_bytes "
            "skipped_steps held_out_loss");
  EXPECT_EQ(Text(report, "out"), out_);
  EXPECT_EQ(Number(report, "steps"), 5.0);
  EXPECT_EQ(Number(report, "parameters"), Number(report, "trained_parameters"));
  EXPECT_EQ(Number(report, "skipped_steps"), 0.0);
}

TEST_F(TrainTest, HeldOutLossIsTheScoreOfItsWindows) {
  for (const size_t count : {2, 9, 17, 40}) {
    const auto ids = SomeIds(count, 48, count);
    const std::string path = folder_.Put("held-out", JoinIds(ids));
    for (const std::string arch : {"mamba", "mamba2"}) {
      Remove();
      const core::Value report =
          Json(Train({"--arch", arch, "--json", "--lr", "0.01", "--eval", path}));
      const double loss = Number(report, "held_out_loss");
      EXPECT_NEAR(WindowNll(folder_, out_, ids, 16), loss, kSameModel) << count;
      // Up to a sequence and its last target it is the score of the whole.
      if (count > 17) continue;
      EXPECT_NEAR(ScoreNll(out_, path), loss, kSameModel) << count;
    }
  }
  // Each evaluation is told.
  Remove();
  const Outcome o = Train({"--eval", data_, "--eval-every", "2"});
  ASSERT_TRUE(Done(o));
  for (const char* line :
       {"step 2: held-out loss ", "step 4: held-out loss ", "step 5: held-out "}) {
    EXPECT_NE(o.err.find(line), std::string::npos) << o.err;
  }
  EXPECT_NE(o.out.find(", held-out loss "), std::string::npos) << o.out;
}

TEST_F(TrainTest, EveryKindOfModelGoesOn) {
  const std::string window = folder_.Put("first", JoinIds(SomeIds(17, 40)));
  for (const std::string model :
       {"mamba_basic", "mamba_untied", "mamba_f16", "mamba2_basic", "mamba2_bf16", "mamba2_shards",
        "mamba2_untied", "mamba2_infinity_bare", "mamba_rank_auto", "mamba_padded_vocab",
        "falcon_mamba_basic", "falcon_mamba_bf16", "original_mamba", "original_mamba2_defaults"}) {
    Remove();
    // The first loss is that of the model as it was: nothing of it is lost on the way.
    ASSERT_TRUE(Done(Hognose(Init(Fixture(model), {"--data", window, "--batch-size", "1", "--order",
                                                   "sequential", "--steps", "1", "--log", log_}))))
        << model;
    EXPECT_NEAR(Losses(log_).at(0), ScoreNll(Fixture(model), window), kSameModel) << model;
    EXPECT_LT(ScoreNll(out_, window), Losses(log_).at(0)) << model;
    const core::Value config = *io::ParseJson(Slurp(out_ + "/config.json"), "config");
    const core::Value* dtype = config.Find("torch_dtype");
    if (dtype == nullptr) dtype = config.Find("dtype");
    EXPECT_TRUE(dtype == nullptr || *dtype->AsString() == "float32") << model;
    Remove();
    const Outcome o = Hognose(Init(Fixture(model), {"--precision", "bf16", "--data", window}));
    ASSERT_TRUE(Done(o)) << model;
    EXPECT_TRUE(Done(Hognose({"inspect", out_}))) << model;
  }
}

TEST_F(TrainTest, GradientsHaveTheCheckpointsNames) {
  const std::string path = folder_ / "gradients";
  for (const std::string model : {"mamba_untied", "mamba2_basic", "falcon_mamba_basic"}) {
    Remove();
    ASSERT_TRUE(Done(Hognose(Init(Fixture(model), {"--gradients", path, "--log", log_}))));
    const auto gradients = io::SafetensorsFile::Open(path);
    const auto written = io::SafetensorsFile::Open(Fixture(model) + "/model.safetensors");
    ASSERT_TRUE(gradients.ok() && written.ok());
    double squares = 0.0;
    ASSERT_EQ(gradients->tensors().size(), written->tensors().size());
    for (const auto& [name, tensor] : written->tensors()) {
      const auto it = gradients->tensors().find(name);
      ASSERT_NE(it, gradients->tensors().end()) << name;
      EXPECT_EQ(core::ShapeToString(it->second.dims()), core::ShapeToString(tensor.dims()));
      for (size_t i = 0; i < tensor.elements(); ++i) {
        const double g = it->second.As<float>()[i];
        squares += g * g;
      }
    }
    // They are those of the first step, before they are clipped.
    const double norm = Number(ReadLog(log_).at(0), "grad_norm");
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
  }
}

TEST_F(TrainTest, SequentialReadsThePromisedTokens) {
  constexpr size_t kBatch = 2, kLength = 8, kSteps = 3;
  const auto ids = SomeIds(60);
  const Arguments flags = {"--batch-size",
                           "2",
                           "--sequence-length",
                           "8",
                           "--steps",
                           "3",
                           "--order",
                           "sequential",
                           "--log",
                           log_,
                           "--data",
                           folder_ / "tokens"};
  const auto train = [&](const std::vector<int64_t>& tokens) {
    folder_.Put("tokens", JoinIds(tokens));
    Remove();
    EXPECT_TRUE(Done(Train(flags)));
    return Losses(log_);
  };
  const auto want = train(ids);
  const std::string model = Slurp(out_ + "/model.safetensors");
  ASSERT_EQ(want.size(), kSteps);
  for (const size_t i : {0, 1, 8, 15, 16, 17, 32, 33, 47, 48, 49, 59}) {
    auto other = ids;
    other[i] = (other[i] + 1) % 48;
    const auto got = train(other);
    // Token i is read in step i / (B L), and is the target of the one before it.
    const size_t first = i == 0 ? 0 : (i - 1) / (kBatch * kLength);
    for (size_t step = 0; step < std::min(first, kSteps); ++step) {
      EXPECT_EQ(got[step], want[step]) << i;
    }
    EXPECT_TRUE(first >= kSteps || got[first] != want[first]) << i;
    EXPECT_EQ(Slurp(out_ + "/model.safetensors") == model, first >= kSteps) << i;
  }
}

TEST_F(TrainTest, NpyAndTextOfIdsAreTheSame) {
  const auto ids = SomeIds(400);
  ASSERT_TRUE(Done(Train()));
  const auto want = Result();
  for (const bool wide : {true, false}) {
    std::string npy("\x93NUMPY\1\0", 8);
    std::string header = std::string("{'descr': '") + (wide ? "<i8" : "<i4") +
                         "', 'fortran_order': False, 'shape': (400,), }";
    header.append(63 - (10 + header.size()) % 64, ' ');
    header += '\n';
    npy += static_cast<char>(header.size());
    npy += '\0';
    npy += header;
    for (const int64_t id : ids) {
      npy.append(reinterpret_cast<const char*>(&id), wide ? 8 : 4);
    }
    Remove();
    ASSERT_TRUE(Done(Train({"--data", folder_.Put("data.npy", npy)})));
    EXPECT_TRUE(Result() == want);
  }
  Remove();
  std::string commas = Slurp(data_);
  std::replace(commas.begin(), commas.end(), ' ', ',');
  ASSERT_TRUE(Done(Train({"--data", folder_.Put("commas", commas), "--data-format", "ids"})));
  EXPECT_TRUE(Result() == want);
}

TEST_F(TrainTest, TextAndJsonl) {
  const std::string text = folder_.Put("text", kEnglish);
  const std::string jsonl = folder_.Put(
      "documents.jsonl",
      "{\"text\": \"The rain had stopped.\"}\n\n{\"n\": 1, \"text\": \"Nobody was about.\"}\n"
      "{\"text\": \"\"}\n{\"text\": \"A dog barked once behind a wall and was quiet again.\"}");
  const Arguments tokenizer = {"--tokenizer", kDemo + "/tokenizer.json"};
  for (const std::string& data : {text, jsonl}) {
    Remove();
    Arguments args = {"train", "--arch",       "mamba2", "--d-model",
                      "16",    "--layers",     "1",      "--d-state",
                      "8",     "--head-dim",   "8",      "--data",
                      data,    "--out",        out_,     "--steps",
                      "3",     "--batch-size", "2",      "--sequence-length",
                      "8",     "--eval",       data};
    args.insert(args.end(), tokenizer.begin(), tokenizer.end());
    ASSERT_TRUE(Done(Hognose(args)));
    EXPECT_EQ(Slurp(out_ + "/tokenizer.json"), Slurp(kDemo + "/tokenizer.json"));
    const Outcome run = Hognose({"run", out_, "-p", "The rain", "-n", "4", "--temperature", "0"});
    EXPECT_TRUE(Done(run));
    EXPECT_TRUE(Done(Hognose({"score", out_, "--text", text})));
  }
  // The bundled model: its tokenizer goes along.
  Remove();
  ASSERT_TRUE(Done(Hognose(Init(kDemo, {"--data", text, "--steps", "1", "--batch-size", "1"}))));
  EXPECT_EQ(Slurp(out_ + "/tokenizer.json"), Slurp(kDemo + "/tokenizer.json"));
  const core::Value before = Json(Hognose({"score", kDemo, "--text", text}));
  const core::Value after = Json(Hognose({"score", out_, "--text", text}));
  EXPECT_NEAR(Number(before, "nll"), Number(after, "nll"), 0.3);
}

TEST_F(TrainTest, AConfigurationInPlaceOfSizes) {
  const std::string config = Fixture("mamba2_groups_4") + "/config.json";
  const std::string data = folder_.Put("ids", JoinIds(SomeIds(100, 40)));
  ASSERT_TRUE(Done(Hognose(Args({"--model-config", config}, {"--data", data}))));
  const auto made = io::SafetensorsFile::Open(out_ + "/model.safetensors");
  const auto model = io::SafetensorsFile::Open(Fixture("mamba2_groups_4") + "/model.safetensors");
  ASSERT_TRUE(made.ok() && model.ok());
  for (const auto& [name, tensor] : model->tensors()) {
    ASSERT_TRUE(made->tensors().contains(name)) << name;
    EXPECT_EQ(core::ToString(made->tensors().at(name)), core::ToString(tensor)) << name;
  }
  EXPECT_EQ(made->tensors().size(), model->tensors().size());
}

TEST_F(TrainTest, TomlSaysTheSame) {
  ASSERT_TRUE(Done(Train({"--lr", "0.02", "--steps", "3", "--freeze", "norm", "--freeze", "A_log",
                          "--order", "sequential"})));
  const auto want = Result();
  const std::string toml = folder_.Put("run.toml",
                                       "# a comment\nlr = 0.02\nsteps = 3\norder = \"sequential\"\n"
                                       "freeze = [\"norm\", \"A_log\"]\nresume = false\n");
  for (const Arguments& more : {Arguments{"--config", toml}, Arguments{"--config=" + toml}}) {
    Remove();
    Arguments args = Tiny(more);
    const auto steps = std::find(args.begin(), args.end(), "--steps");
    args.erase(steps, steps + 2);  // the command line would win
    ASSERT_TRUE(Done(Hognose(args)));
    EXPECT_TRUE(Result() == want);
  }
  // Wherever the file stands, a flag beside it wins.
  for (const bool before : {true, false}) {
    Remove();
    Arguments args = Tiny({"--config", toml, "--log", log_});
    if (before) {
      std::rotate(args.begin() + 1, args.end() - 4, args.end());
    }
    ASSERT_TRUE(Done(Hognose(args)));
    EXPECT_EQ(ReadLog(log_).size(), 5u) << before;
  }
}

TEST_F(TrainTest, ThreadsAndCheckpointsChangeNoBit) {
  ASSERT_TRUE(Done(Train()));
  const auto want = Result();
  for (const Arguments& more : {Arguments{"-t", "3"},
                                {"--checkpoint", "layer"},
                                {"--save-every", "1"},
                                {"--eval", data_, "--eval-every", "1"},
                                {"--gradient-memory", "shared"},
                                {"--log", log_},
                                {"--batch-size", "1", "--accumulate", "2"}}) {
    Remove();
    ASSERT_TRUE(Done(Train(more)));
    EXPECT_EQ(Result()[1], want[1]) << more[0];
    // Other settings are in the state, even where the steps are the same.
    EXPECT_EQ(Result()[2] == want[2], more[0] != "--batch-size") << more[0];
  }
  Remove();
  ASSERT_TRUE(Done(Train({"--seed", "1"})));
  EXPECT_NE(Result()[1], want[1]);
}

TEST_F(TrainTest, TheSpectralRadiusIsBounded) {
  ASSERT_TRUE(Done(Train({"--time-step-limit", "0.05,1", "--max-spectral-radius", "0.9", "--lr",
                          "0.3", "--steps", "20"})));
  const auto model = io::SafetensorsFile::Open(out_ + "/model.safetensors");
  ASSERT_TRUE(model.ok());
  size_t heads = 0;
  for (const auto& [name, tensor] : model->tensors()) {
    if (!name.ends_with("A_log")) continue;
    for (size_t i = 0; i < tensor.elements(); ++i, ++heads) {
      EXPECT_LE(std::exp(-std::exp(static_cast<double>(tensor.As<float>()[i])) * 0.05), 0.9);
    }
  }
  EXPECT_EQ(heads, 8u);
}

}  // namespace
}  // namespace hognose::cli_test
