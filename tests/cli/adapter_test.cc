// hognose train --lora-rank, run and score --adapter, merge: adapters from data to a model.
#include "io/adapter.h"

#include <filesystem>

#include "tests/cli/train_util.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;

class AdapterTest : public TrainTest {
 protected:
  Arguments Lora(const std::string& base, const Arguments& more = {}) const {
    Arguments flags = {"--lora-rank", "3", "--lora-alpha", "6", "--lr", "0.01"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Init(base, flags);
  }
  Outcome TrainLora(const Arguments& more = {}) const { return Hognose(Lora(base_, more)); }
  // The nll, all its digits, and the bytes of all logits.
  std::pair<double, std::string> Score(const std::string& model, const Arguments& more = {}) const {
    const std::string logits = folder_ / "logits.npy";
    Arguments args = {"score", model, "--ids", data_,      "--activations",
                      "f32",   "-t",  "1",     "--logits", logits};
    args.insert(args.end(), more.begin(), more.end());
    const double nll = Number(Json(Hognose(args)), "nll");
    return {nll, Slurp(logits)};
  }
  std::string Names() const {
    std::string names;
    for (const auto& [name, bytes] : Contents(out_)) names += name + " ";
    return names;
  }
  std::string Int8() const {
    EXPECT_TRUE(Done(Quantize(base_, folder_ / "int8", "int8")));
    return folder_ / "int8";
  }

  const std::string base_ = Fixture("mamba2_basic");
  const std::string merged_ = folder_ / "merged";
};

TEST_F(AdapterTest, TheFolderHoldsAdaptersAndNothingElse) {
  const Outcome o = TrainLora({"--lora-target", "in_proj,out_proj"});
  ASSERT_TRUE(Done(o));
  EXPECT_EQ(Names(),
            "adapter_config.json adapter_model.safetensors loss.svg training_state.safetensors ");
  const auto adapter = io::OpenAdapter(out_);
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_EQ(adapter->scale, 2.0f);
  EXPECT_EQ(Text(adapter->config, "base_model_name_or_path"), base_);
  EXPECT_EQ(io::ToJson(*adapter->config.Find("target_modules")), R"(["in_proj","out_proj"])");
  const auto base = io::SafetensorsFile::Open(base_ + "/model.safetensors");
  ASSERT_TRUE(base.ok());
  size_t all = 0, trained = 0, matrices = 0;
  for (const auto& [name, tensor] : base->tensors()) {
    all += tensor.elements();
    if (!name.ends_with("in_proj.weight") && !name.ends_with("out_proj.weight")) continue;
    const std::string module = name.substr(0, name.rfind('.'));
    EXPECT_EQ(core::ToString(adapter->tensors.at(module + ".lora_A.weight")),
              "f32 [3, " + std::to_string(tensor.shape[1]) + "]");
    EXPECT_EQ(core::ToString(adapter->tensors.at(module + ".lora_B.weight")),
              "f32 [" + std::to_string(tensor.shape[0]) + ", 3]");
    trained += 3 * (tensor.shape[0] + tensor.shape[1]);
    ++matrices;
  }
  EXPECT_EQ(adapter->tensors.size(), 2 * matrices);
  all += trained;
  const double percent = 100.0 * static_cast<double>(trained) / static_cast<double>(all);
  char text[100];
  snprintf(text, sizeof text, "%zu parameters, %zu trained (%.2f %%)", all, trained, percent);
  EXPECT_NE(o.err.find(text), std::string::npos) << text << "\n" << o.err;
}

// B begins at zero: the run's first loss is the base's, and an adapter that hardly moved is the
// base bit for bit. One step changes the logits.
TEST_F(AdapterTest, BeginsAsTheBaseAndMoves) {
  const auto base = Score(base_);
  ASSERT_TRUE(Done(TrainLora({"--steps", "1", "--lr", "1e-30"})));
  EXPECT_TRUE(Score(base_, {"--adapter", out_}) == base);
  ASSERT_TRUE(Done(TrainLora({"--steps", "1", "--schedule", "constant", "--force"})));
  const auto moved = Score(base_, {"--adapter", out_});
  EXPECT_FALSE(moved.second == base.second);
  ASSERT_TRUE(Done(TrainLora({"--steps", "40", "--schedule", "constant", "--force"})));
  EXPECT_LT(Score(base_, {"--adapter", out_}).first, base.first);
}

TEST_F(AdapterTest, ThreadsAndCheckpointsHaveTheSameBits) {
  for (const std::string& base : {base_, Fixture("mamba_basic"), Int8()}) {
    std::string first;
    for (const Arguments& more :
         {Arguments{}, {"-t", "3"}, {"--checkpoint", "layer"}, {"-t", "2", "--precision", "f32"}}) {
      Arguments args = Lora(base, more);
      args.push_back("--force");
      ASSERT_TRUE(Done(Hognose(args))) << base;
      const std::string got = Slurp(out_ + "/adapter_model.safetensors");
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << base;
    }
  }
}

TEST_F(AdapterTest, ResumesAsIfItHadNeverStopped) {
  const Arguments flags = {"--steps", "120", "--save-every", "3", "--log", log_};
  ASSERT_TRUE(Done(TrainLora(flags)));
  const std::string want = Slurp(out_ + "/adapter_model.safetensors");
  const std::string state = Slurp(out_ + "/training_state.safetensors");
  Remove();
  const auto lines = [&] {
    const std::string text = Slurp(log_);
    return std::count(text.begin(), text.end(), '\n');
  };
  fs::remove(log_);
  const Outcome o =
      Launch({.args = Lora(base_, flags), .interrupt = [&](const auto&) { return lines() > 3; }});
  ASSERT_EQ(o.code, 130) << Describe(o);
  EXPECT_FALSE(Slurp(out_ + "/adapter_model.safetensors") == want);
  Arguments resume = flags;
  resume.insert(resume.end(), {"--resume"});
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), resume.begin(), resume.end());
    return more;
  };
  // What would make another adapter of it is refused by name.
  const std::string begin = out_ + "/training_state.safetensors: ";
  EXPECT_TRUE(Fails(TrainLora(with({"--lora-alpha", "3"})), 1, begin + "lora-alpha: got 6"));
  EXPECT_TRUE(Fails(TrainLora(with({"--lora-rank", "2"})), 1, begin + "lora-rank: got 3"));
  EXPECT_TRUE(
      Fails(TrainLora(with({"--lora-target", "in_proj"})), 1, begin + "lora-target: got \""));
  // The same shapes, other weights: the fixture's after a training.
  Arguments other = Init(base_, {"--out", folder_ / "other"});
  ASSERT_TRUE(Done(Hognose(other)));
  EXPECT_TRUE(Fails(Hognose(Lora(folder_ / "other", resume)), 1, begin + "init: got \""));
  EXPECT_TRUE(Fails(Hognose(Args({}, with({"--lora-rank", "3"}))), 2, "--lora-rank: "));
  EXPECT_EQ(Hognose(Args({}, resume)).code, 1);
  ASSERT_TRUE(Done(TrainLora(resume)));
  EXPECT_TRUE(Slurp(out_ + "/adapter_model.safetensors") == want);
  EXPECT_TRUE(Slurp(out_ + "/training_state.safetensors") == state);
}

TEST_F(AdapterTest, WrongFlags) {
  EXPECT_TRUE(Fails(Hognose(Tiny({"--lora-rank", "3"})), 2,
                    "--lora-rank: got no --init of a language model"));
  for (const auto& [target, middle] : std::vector<std::pair<std::string, std::string>>{
           {"gate_proj", "got \"gate_proj\""},
           {"in_proj,gate_proj", "got \"gate_proj\""},
           {"in_proj,", "got \"\""},
           {"proj", "got \"proj\""},
           {"conv1d", "got \"conv1d\""},
           {"norm", "got \"norm\""},
           {"lm_head", "got \"lm_head\""},
           {"in_proj,embeddings", "got backbone.embeddings"},
           {"embeddings", "got backbone.embeddings"}}) {
    EXPECT_TRUE(Fails(TrainLora({"--lora-target", target}), 1, "--lora-target: ", middle));
    EXPECT_FALSE(fs::exists(out_));
  }
  // A head of its own is no matrix of a block either.
  const Arguments head = {"--lora-target", "in_proj,lm_head"};
  EXPECT_TRUE(
      Fails(Hognose(Lora(Fixture("mamba2_untied"), head)), 1, "--lora-target: got \"lm_head"));
  EXPECT_TRUE(Fails(TrainLora({"--freeze", "lora_"}), 2, "--freeze: "));
  EXPECT_FALSE(fs::exists(out_));
}

// Frozen halves are part of the adapter all the same.
TEST_F(AdapterTest, AFrozenHalfIsWrittenToo) {
  ASSERT_TRUE(Done(TrainLora({"--freeze", "lora_A", "--schedule", "constant"})));
  const auto base = Score(base_);
  EXPECT_FALSE(Score(base_, {"--adapter", out_}).second == base.second);
  const auto first = io::OpenAdapter(out_);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->tensors.size() % 4, 0u);  // two layers
}

TEST_F(AdapterTest, MergeMakesAModel) {
  for (const std::string name : {"mamba2_basic", "mamba_bf16"}) {
    const std::string base = Fixture(name);
    Arguments train = Lora(base, {"--steps", "20", "--schedule", "constant", "--force"});
    ASSERT_TRUE(Done(Hognose(train)));
    ASSERT_TRUE(Done(Hognose({"merge", base, out_, merged_, "--force"})));
    std::string names;
    for (const auto& [file, bytes] : Contents(merged_)) names += file + " ";
    EXPECT_EQ(names, "config.json model.safetensors ");
    const double with = Score(base, {"--adapter", out_}).first;
    const double merged = Score(merged_, {"--strict"}).first;
    // The mean of 399 losses. In f32 as TrainTest has it. Weights in bf16 are off by half an eps,
    // 2^-9, each, and so are logits below 8 before that averages.
    EXPECT_NEAR(merged, with, name == "mamba_bf16" ? 0x1p-6 : 2e-5);
  }
  const auto report =
      Json(Hognose({"merge", Fixture("mamba_bf16"), out_, folder_ / "x", "--json"}));
  EXPECT_EQ(Keys(report), "out matrices");
}

TEST_F(AdapterTest, RunTakesIt) {
  const std::string text = folder_.Put("text", kEnglish);
  const auto train = [&](const std::string& lr) {
    return Hognose(Args({"--init", kDemo, "--data", text, "--data-format", "text"},
                        {"--lora-rank", "2", "--steps", "1", "--batch-size", "1", "--schedule",
                         "constant", "--force", "--lr", lr}));
  };
  const auto run = [&](const std::string& model, const Arguments& more = {}) {
    Arguments args = {"run", model, "-p", "Once", "-n", "12", "--temperature", "0"};
    args.insert(args.end(), more.begin(), more.end());
    return Hognose(args);
  };
  const std::string state = folder_ / "state";
  const Outcome base = run(kDemo, {"--state-out", state});
  ASSERT_TRUE(Done(base));
  ASSERT_TRUE(Done(train("1e-30")));
  EXPECT_EQ(run(kDemo, {"--adapter", out_}).out, base.out);
  ASSERT_TRUE(Done(train("0.05")));
  const Outcome adapted = run(kDemo, {"--adapter", out_});
  ASSERT_TRUE(Done(adapted));
  EXPECT_NE(adapted.out, base.out);
  EXPECT_TRUE(Fails(run(kDemo, {"--adapter", out_, "--state-in", state}), 1, state + ": model: "));
  EXPECT_TRUE(Done(run(kDemo, {"--adapter", out_, "--quantize", "int8"})));
  ASSERT_TRUE(Done(Hognose({"merge", kDemo, out_, merged_})));
  EXPECT_TRUE(fs::exists(merged_ + "/tokenizer.json"));
  EXPECT_TRUE(Done(run(merged_)));
}

TEST_F(AdapterTest, MergeKeepsWhatIsThere) {
  ASSERT_TRUE(Done(TrainLora()));
  ASSERT_TRUE(Done(Hognose({"merge", base_, out_, merged_})));
  const auto model = Contents(merged_), adapter = Contents(out_);
  const auto merge = [&](const std::string& out, const Arguments& more = {}) {
    Arguments args = {"merge", base_, out_, out};
    args.insert(args.end(), more.begin(), more.end());
    return Hognose(args);
  };
  EXPECT_TRUE(Fails(merge(merged_), 1, merged_ + ": got an existing folder"));
  EXPECT_TRUE(Fails(merge(out_, {"--force"}), 1, out_ + ": holds "));
  const std::string copy = folder_ / "copy";
  fs::copy(base_, copy, fs::copy_options::recursive);
  const auto base = Contents(copy);
  EXPECT_TRUE(Fails(Hognose({"merge", copy, out_, copy, "--force"}), 1, copy + ": holds "));
  EXPECT_TRUE(Fails(merge(data_, {"--force"}), 1, data_ + ": got a file"));
  const size_t files = folder_.CountFiles();
  const rlim_t size = fs::file_size(merged_ + "/model.safetensors");
  for (const rlim_t limit : {rlim_t{0}, size / 2, size - 1}) {
    for (const std::string& out : {merged_, folder_ / "new"}) {
      const Outcome o =
          Launch({.args = {"merge", base_, out_, out, "--force"}, .max_file_bytes = limit});
      EXPECT_TRUE(Fails(o, 1, out + "/model.safetensors: could not write: File too large"));
    }
  }
  EXPECT_EQ(folder_.CountFiles(), files);
  EXPECT_TRUE(Contents(merged_) == model);
  EXPECT_TRUE(Contents(out_) == adapter);
  EXPECT_TRUE(Contents(copy) == base);
  ASSERT_TRUE(Done(merge(merged_, {"--force"})));
  EXPECT_TRUE(Contents(merged_) == model);
  EXPECT_TRUE(Fails(Hognose({"merge", base_}), 2, "ADAPTER: got none"));
  EXPECT_TRUE(Fails(Hognose({"merge", base_, out_}), 2, "OUT: got none"));
  EXPECT_TRUE(Fails(Hognose({"merge", base_, base_, folder_ / "new"}), 1,
                    base_ + "/adapter_config.json: "));
}

TEST_F(AdapterTest, OverIntegerWeights) {
  const std::string int8 = Int8();
  const Outcome o = Hognose(Lora(int8, {"--steps", "20", "--schedule", "constant"}));
  ASSERT_TRUE(Done(o));
  // Each weight counts once, whatever stands for it.
  EXPECT_NE(o.err.find(" trained ("), std::string::npos) << o.err;
  const std::string count = o.err.substr(0, o.err.find(" trained ("));
  const Outcome plain = TrainLora({"--steps", "1", "--out", folder_ / "plain"});
  ASSERT_TRUE(Done(plain));
  EXPECT_NE(plain.err.find(count), std::string::npos) << o.err << plain.err;
  EXPECT_EQ(Names(),
            "adapter_config.json adapter_model.safetensors loss.svg training_state.safetensors ");
  EXPECT_LT(Score(int8, {"--adapter", out_}).first, Score(int8).first);
  // On the model that it was quantised from, too.
  EXPECT_LT(Score(base_, {"--adapter", out_}).first, Score(base_).first);
  EXPECT_TRUE(Fails(Hognose({"merge", int8, out_, merged_}), 1, int8 + ": ",
                    "got i8, want f32, bf16 or f16"));
  EXPECT_FALSE(fs::exists(merged_));
  // Without adapters there is nothing to train in integers.
  EXPECT_EQ(Hognose(Init(int8, {"--out", folder_ / "x"})).code, 1);
}

TEST_F(AdapterTest, OfAnotherModelIsRefusedInOneLine) {
  ASSERT_TRUE(Done(TrainLora()));
  const std::string file = out_ + "/adapter_model.safetensors: ";
  for (const char* other : {"mamba_basic", "mamba2_hidden_33", "falcon_mamba_basic"}) {
    const std::string model = Fixture(other);
    EXPECT_TRUE(Fails(Hognose({"score", model, "--ids", data_, "--adapter", out_}), 1, file));
    EXPECT_TRUE(Fails(Hognose({"run", model, "-p", "x", "--adapter", out_}), 1, file));
    EXPECT_TRUE(Fails(Hognose({"merge", model, out_, merged_}), 1, file));
  }
  EXPECT_TRUE(Fails(Hognose({"score", base_, "--ids", data_, "--adapter", folder_ / "none"}), 1,
                    folder_ / "none/adapter_config.json: "));
  EXPECT_TRUE(Fails(Hognose({"score", out_, "--ids", data_}), 1, out_));
}

}  // namespace
}  // namespace hognose::cli_test
