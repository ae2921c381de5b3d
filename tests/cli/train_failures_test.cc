// hognose train: wrong use, wrong data, wrong models: one line that begins with what is wrong, and
// nothing is written.
#include <cmath>

#include "tests/cli/train_util.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;

class TrainFailuresTest : public TrainTest {
 protected:
  void Usage(const Arguments& args, const std::string& begin, const std::string& middle = ": ") {
    EXPECT_TRUE(Fails(Hognose(args), 2, begin, middle)) << begin;
    EXPECT_FALSE(fs::exists(out_)) << begin;
  }
  void Failed(const Arguments& args, const std::string& begin, const std::string& middle = ": ") {
    EXPECT_TRUE(Fails(Hognose(args), 1, begin, middle)) << begin;
    EXPECT_FALSE(fs::exists(out_)) << begin;
  }
};

TEST_F(TrainFailuresTest, WrongUse) {
  Usage({"train"}, "--data: got none, want a file");
  Usage({"train", "--data", data_}, "--out: got none, want a folder");
  Usage({"train", "--data", data_, "--out", out_}, "--vocab: got none and no --tokenizer");
  Usage(Tiny({"--resume", "--force"}), "--force: got --resume too");
  Usage(Tiny({"--init", "a", "--model-config", "b"}), "--model-config: got --init too");
  Usage(Tiny({"--eval-every", "2"}), "--eval-every: got no --eval");
  Usage(Tiny({"--max-spectral-radius", "1"}), "--max-spectral-radius: got 1");
  Usage(Tiny({"--max-spectral-radius", "0.9"}), "--max-spectral-radius: got no time_step_limit",
        "--time-step-limit");
  Usage(Tiny({"--max-spectral-radius", "0.9", "--time-step-limit", "0,1"}),
        "--max-spectral-radius: got no time_step_limit");
  Usage(Tiny({"--max-spectral-radius", "0.9", "--arch", "mamba"}),
        "--max-spectral-radius: got a model of type mamba, want mamba2");
  Usage(Tiny({"--time-step-limit", "0.1,1", "--arch", "mamba"}), "--time-step-limit: got limits");
  for (const std::string limit : {"1", "1,", ",1", "1,1", "2,1", "-1,1", "a,b", "0,1,2", "nan,1"}) {
    Usage(Tiny({"--time-step-limit", limit}), "--time-step-limit: got \"" + limit + "\"");
  }
  Usage(Init(Fixture("mamba_basic"), {"--time-step-limit", "0.1,1"}),
        "--time-step-limit: ", "mamba2");
  Usage(Tiny({"--lr", "0"}), "--lr: got 0");
  Usage(Tiny({"--lr", "nan"}), "--lr: got \"nan\"");
  Usage(Tiny({"--min-lr", "1"}), "--min-lr: got 1, want from 0 to --lr 0.001");
  Usage(Tiny({"--warmup", "6"}), "--warmup: got 6, want at most --steps 5");
  Usage(Tiny({"--eps", "0"}), "--eps: got 0");
  Usage(Tiny({"--head-dim", "7"}), "--head-dim: got 7");
  Usage(Tiny({"--groups", "3"}), "--groups: got 3");
  Usage(Tiny({"--order", "backwards"}), "--order: got \"backwards\", want shuffled|sequential");
  Usage(Tiny({"--data-format", "csv"}), "--data-format: got csv");
  Usage(Tiny({"--arch", "rwkv"}), "--arch: got \"rwkv\", want mamba|mamba2");
  Usage(Tiny({"--steps", "0"}), "--steps: got \"0\"");
  Usage(Tiny({"--batch-size", "0"}), "--batch-size: got \"0\"");
  Usage(Tiny({"--freeze", "."}), "--freeze: got patterns for every tensor");
  Usage(Tiny({"another"}), "another: unexpected argument");
  Usage(Tiny({"--walk"}), "--walk: unknown flag");
}

TEST_F(TrainFailuresTest, Data) {
  const auto data = [&](const std::string& bytes, const Arguments& more = {},
                        const std::string& name = "bad") {
    Arguments args = Tiny({"--data", folder_.Put(name, bytes)});
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const std::string bad = folder_ / "bad: ";
  Failed(Tiny({"--data", folder_ / "none"}), folder_ / "none: ", "No such file");
  Failed(Tiny({"--data", folder_.path()}), folder_.path() + ": ");
  Failed(data(""), bad + "got an empty file");
  Failed(data(" \n"), bad + "got no tokens");
  Failed(data("1 2 3 48 5"), bad + "token 3: got 48, want an id from 0 to 47");
  Failed(data("1 2 3 99999999999999999999"), bad);
  Failed(data("1 2 -3", {"--data-format", "ids"}), bad);
  Failed(data("some text"), bad + "got text (\"some tex\" at byte 0), want token ids");
  Failed(data(JoinIds(SomeIds(16))), bad + "got 16 tokens, want at least 17");
  Failed(data("7"), bad + "got 1 token");
  Failed(data("\x93NUMPY", {}, "bad"), bad);
  // Too few for the steps in sequential order: 2 sequences of 16 a step.
  Failed(data(JoinIds(SomeIds(160)), {"--order", "sequential"}),
         "--steps: got 5, want at most 4: " + folder_ / "bad holds 9 sequences of 16 tokens");
  const auto held_out = [&](const std::string& bytes) {
    return Tiny({"--eval", folder_.Put("bad", bytes)});
  };
  Failed(held_out("1"), bad + "got 1 token");
  Failed(held_out(""), bad + "got an empty file");
  Failed(held_out("1 2 99"), bad + "token 2: got 99");
  const Arguments tokenizer = {"--tokenizer", kDemo + "/tokenizer.json", "--vocab", "2048"};
  const auto text = [&](const std::string& bytes, const std::string& name) {
    return data(bytes, tokenizer, name);
  };
  Failed(text("no JSON", "bad.jsonl"), folder_ / "bad.jsonl: line 1 ");
  Failed(text("{\"text\": \"a\"}\n{\"txt\": \"a\"}", "bad.jsonl"),
         folder_ / "bad.jsonl: line 2: got an object without \"text\"");
  Failed(text("{\"text\": 3}", "bad.jsonl"), folder_ / "bad.jsonl: line 1: got ", "string");
  Failed(text("invalid \xFF", "bad"), bad, "UTF-8");
}

TEST_F(TrainFailuresTest, Models) {
  Failed(Init(folder_ / "none"), folder_ / "none: ", "no such folder");
  Failed(Tiny({"--tokenizer", folder_ / "none"}), folder_ / "none: ", "No such file");
  Failed(Tiny({"--tokenizer", data_}), data_ + ": ");
  Failed(Tiny({"--model-config", folder_ / "none"}), folder_ / "none: ", "No such file");
  const auto config = [&](const std::string& json) {
    return Args({"--model-config", folder_.Put("c.json", json)}, {"--vocab", "48"});
  };
  Failed(config("3"), folder_ / "c.json: got ", "want an object");
  Failed(config("{"), folder_ / "c.json: ");
  Failed(config("{}"), folder_ / "c.json: model_type: got \"\"");
  Failed(config("{\"model_type\": \"mamba\"}"), folder_ / "c.json: hidden_size: got nothing");
  Failed(Tiny({"--freeze", "walk"}), "--freeze: got \"walk\", want a part of some tensor's name");
  // Frozen A_log can't be brought within the bound.
  Usage(Tiny({"--time-step-limit", "0.001,1", "--max-spectral-radius", "0.5", "--freeze", "A_log"}),
        "--freeze: backbone.layers.0.mixer.A_log: got ", "--max-spectral-radius");
  // Wide heads can be run, not trained.
  Failed(Tiny({"--d-state", "300"}), "flags: layer 0: got heads of width 8 and 300 states");
  for (const std::string to : {"int8", "int4"}) {
    const std::string quantised = folder_ / to;
    ASSERT_TRUE(Done(Quantize(Fixture("mamba2_basic"), quantised, to)));
    Failed(Init(quantised),
           quantised + "/model.safetensors: ", "a quantised model can't be trained");
  }
}

TEST_F(TrainFailuresTest, WeightsThatAreNoNumbers) {
  const std::string model = folder_ / "model";
  fs::copy(Fixture("mamba_basic"), model);
  const auto old = io::SafetensorsFile::Open(Fixture("mamba_basic") + "/model.safetensors");
  ASSERT_TRUE(old.ok());
  for (const auto& [name, tensor] : old->tensors()) {
    if (name.find("layers.1") != std::string::npos) continue;
    for (const float bad : {NAN, INFINITY}) {
      std::vector<float> values(tensor.As<float>(), tensor.As<float>() + tensor.elements());
      values[7] = bad;
      core::TensorMap tensors = old->tensors();
      tensors[name].data = values.data();
      WriteTensors(model + "/model.safetensors", tensors);
      Failed(Init(model), model + "/model.safetensors: ", name);
    }
  }
}

TEST_F(TrainFailuresTest, UnknownTensors) {
  const std::string model = folder_ / "model";
  fs::copy(Fixture("mamba_basic"), model);
  const auto old = io::SafetensorsFile::Open(Fixture("mamba_basic") + "/model.safetensors");
  ASSERT_TRUE(old.ok());
  core::TensorMap tensors = old->tensors();
  const std::vector<float> values = {1.0f, 2.0f};
  for (const char* name : {"extra.a.weight", "extra.b.weight"}) {
    tensors[name] = {values.data(), core::DType::kF32, 2, {1, 2}};
  }
  WriteTensors(model + "/model.safetensors", tensors);
  const std::string line =
      model + "/model.safetensors: extra.a.weight: unknown tensor (and 1 more)";
  Failed(Init(model, {"--strict"}), line + ", want none");
  const Outcome o = Hognose(Init(model));
  ASSERT_TRUE(Done(o));
  EXPECT_TRUE(o.err.starts_with(line + ", not trained\n")) << o.err;
  // They are kept as they are: no decay either.
  const auto written = io::SafetensorsFile::Open(out_ + "/model.safetensors");
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->tensors().at("extra.b.weight").As<float>()[1], 2.0f);
}

TEST_F(TrainFailuresTest, WhatIsThereIsKept) {
  ASSERT_TRUE(Done(Train()));
  const auto old = Contents(out_);
  EXPECT_TRUE(Fails(Train(), 1, out_ + ": got an existing folder, want a new one (or --force)"));
  EXPECT_TRUE(Contents(out_) == old);
  fs::create_directory(folder_ / "photos");
  folder_.Put("photos/one", "1");
  for (const Arguments& more : {Arguments{}, {"--force"}}) {
    Arguments args = {"--out", folder_ / "photos"};
    args.insert(args.end(), more.begin(), more.end());
    EXPECT_TRUE(Fails(Train(args), 1, folder_ / "photos: got "));
    // Nothing that is read is replaced: neither the model nor the data in its folder.
    const std::string data = folder_.Put("out/data", Slurp(data_));
    args = {"--force", "--data", data};
    EXPECT_TRUE(Fails(Train(args), 1, out_ + ": holds " + data));
    EXPECT_TRUE(Fails(Train({"--force", "--eval", data}), 1, out_ + ": holds " + data));
    EXPECT_TRUE(Fails(Hognose(Init(out_, {"--force"})), 1, out_ + ": holds " + out_));
    fs::remove(data);
    EXPECT_TRUE(Contents(out_) == old);
  }
  ASSERT_TRUE(Done(Train({"--force", "--seed", "4"})));
  EXPECT_FALSE(Contents(out_) == old);
  EXPECT_EQ(folder_.CountFiles(), 3u);
  // Files that can't be written are told before anything is done.
  Remove();
  Failed(Tiny({"--log", folder_ / "no/log"}), folder_ / "no/log: could not write");
  Failed(Tiny({"--gradients", folder_.path()}), folder_.path() + ": got a folder");
  Failed(Tiny({"--out", folder_ / "no/out"}), folder_ / "no/out: could not write");
}

TEST_F(TrainFailuresTest, Toml) {
  const auto toml = [&](const std::string& text) {
    return Tiny({"--config", folder_.Put("c.toml", text)});
  };
  Usage(Tiny({"--config", folder_ / "none"}), "--config: " + folder_ / "none: ", "No such file");
  Usage(Tiny({"--config", folder_.path()}), "--config: ", folder_.path());
  Usage(Tiny({"--config"}), "--config: got no value");
  Usage(toml("walk = 3\n"), "--walk: unknown flag");
  Usage(toml("lr = \"fast\"\n"), "--lr: got \"fast\"");
  Usage(toml("[train]\nlr = 0.1\n"), "--config: " + folder_ / "c.toml: got the section [train]");
  Usage(toml("accumulate = 1.5\n"), "--accumulate: got \"1.5\"");
  const std::string file = "--config: " + folder_ / "c.toml: got ";
  Usage(toml("lr = \n"), file + "\"lr\", want a flag's name = a value");
  Usage(toml("this is no TOML\n"), file + "\"this is no TOML\"");
  Usage(toml("config = \"c.toml\"\n"), file + "\"config\"");
  Usage(toml("momentum = [\n"), "--momentum: got \"[\"");
}

// A run whose numbers overflow stops at the step, names it, and keeps the last checkpoint.
TEST_F(TrainFailuresTest, Divergence) {
  for (const bool decays : {true, false}) {
    Remove();
    Arguments args = {"--lr",    "1e25", "--optimizer",  "sgd", "--clip",     "0",
                      "--steps", "50",   "--save-every", "1",   "--schedule", "constant",
                      "--log",   log_};
    if (!decays) args.insert(args.end(), {"--freeze", "A_log"});
    const Outcome o = Train(args);
    EXPECT_EQ(o.code, 1) << Describe(o);
    const std::string line = o.err.substr(o.err.rfind('\n', o.err.size() - 2) + 1);
    EXPECT_TRUE(line.starts_with("step " + std::to_string(ReadLog(log_).size()) + ": ")) << line;
    const std::string what = decays ? "its update: weights: backbone." : " not finite: the ";
    EXPECT_NE(line.find(what), std::string::npos) << line;
    EXPECT_TRUE(Done(Hognose({"inspect", out_})));
  }
}

}  // namespace
}  // namespace hognose::cli_test
