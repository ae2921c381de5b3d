// hognose quantize: wrong use, folders in the way, full disks, Ctrl-C. Whatever happens, the model
// and an old folder stay whole, and nothing half done is left.
#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "codecs/float16.h"
#include "tests/cli/quantize_util.h"

namespace hognose::cli_test {
namespace {

namespace fs = std::filesystem;

class QuantizeFailuresTest : public ::testing::Test {
 protected:
  QuantizeFailuresTest() { fs::copy(Fixture("mamba_basic"), model_); }
  // A folder that is there already.
  void MakeOld() { ASSERT_TRUE(Done(Quantize(model_, out_, "int4"))); }

  TestFolder folder_;
  const std::string model_ = folder_ / "model", out_ = folder_ / "out";
};

TEST_F(QuantizeFailuresTest, WrongUse) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"quantize"}, "MODEL: got none"},
      {{"quantize", model_, "--to", "int8"}, "OUT: got none"},
      {{"quantize", model_, "", "--to", "int8"}, "OUT: got \"\""},
      {{"quantize", model_, out_}, "--to: got none, want int8|int4|bf16"},
      {{"quantize", model_, out_, "--to"}, "--to: got no value"},
      {QuantizeArgs(model_, out_, "int3"), "--to: got \"int3\", want int8|int4|bf16"},
      {QuantizeArgs(model_, out_, "int8", {"--group", "48"}),
       "--group: got 48, want 32, 64 or 128"},
      {QuantizeArgs(model_, out_, "int8", {"--group", "0"}), "--group: got \"0\""},
      {QuantizeArgs(model_, out_, "int8", {"--group", "x"}), "--group: got \"x\""},
      {QuantizeArgs(model_, out_, "int8", {"--gate"}), "--gate: got no --calibration FILE"},
      {QuantizeArgs(model_, out_, "int8", {"--calibration", ""}), "--calibration: got \"\""},
      {QuantizeArgs(model_, out_, "int8", {"-t", "0"}), "-t/--threads: got \"0\""},
      {QuantizeArgs(model_, out_, "int8", {"another"}), "another: unexpected argument"},
      {QuantizeArgs(model_, out_, "int8", {"--walk"}), "--walk: unknown flag"},
  };
  for (const auto& [args, begin] : cases) EXPECT_TRUE(Fails(Hognose(args), 2, begin)) << begin;
  EXPECT_EQ(folder_.CountFiles(), 1u);
}

TEST_F(QuantizeFailuresTest, ModelsThatCannotBe) {
  const auto fails = [&](const std::string& model, const std::string& begin,
                         const std::string& middle, std::vector<std::string> more = {}) {
    for (const std::string to : {"int8", "int4", "bf16"}) {
      EXPECT_TRUE(Fails(Quantize(model, out_, to, more), 1, begin, middle));
      EXPECT_FALSE(fs::exists(out_));
    }
  };
  fails(folder_ / "none", folder_ / "none", "no such folder");
  const auto old = io::SafetensorsFile::Open(Fixture("mamba_basic") + "/model.safetensors");
  ASSERT_TRUE(old.ok());
  for (const auto& [name, tensor] : old->tensors()) {
    if (name != "backbone.embeddings.weight" && !name.ends_with("0.mixer.conv1d.weight")) continue;
    std::vector<float> values(tensor.As<float>(), tensor.As<float>() + tensor.elements());
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      values[7] = bad;
      core::TensorMap tensors = old->tensors();
      tensors[name].data = values.data();
      WriteTensors(model_ + "/model.safetensors", tensors);
      fails(model_, model_ + "/model.safetensors: " + name, "element 7 is not a finite number");
    }
  }
  for (const std::string to : {"int8", "int4"}) {
    const std::string quantised = folder_ / to;
    ASSERT_TRUE(Done(Quantize(Fixture("mamba2_basic"), quantised, to)));
    fails(quantised, quantised + "/model.safetensors: ", "quantised already");
    fails(kDemo, folder_ / "text", "No such file", {"--calibration", folder_ / "text"});
  }
  EXPECT_EQ(folder_.CountFiles(), 3u);
}

TEST_F(QuantizeFailuresTest, TextsThatTellNothing) {
  const auto fails = [&](const std::string& model, const std::string& text,
                         const std::string& begin, const std::string& middle) {
    const std::string path = folder_.Put("text", text);
    const Outcome o = Quantize(model, out_, "int8", {"--calibration", path});
    EXPECT_TRUE(Fails(o, 1, begin.empty() ? path + ": " : begin, middle));
    EXPECT_EQ(folder_.CountFiles(), 2u);
  };
  fails(kDemo, "", "", "got a text of 0 tokens, want at least two");
  fails(kDemo, "a", "", "got a text of 1 tokens, want at least two");
  fails(kDemo, "It was \xFF", "", "byte 7: got invalid UTF-8");
  fails(model_, kEnglish, model_ + "/tokenizer.json: ", "--calibration needs a tokenizer");
}

TEST_F(QuantizeFailuresTest, AnOldFolder) {
  MakeOld();
  const auto old = Contents(out_);
  for (const std::string& name : {out_, out_ + "/", out_ + "//", out_ + "/."}) {
    EXPECT_TRUE(Fails(Quantize(model_, name, "int8"), 1, name + ": got an existing folder"));
    EXPECT_TRUE(Contents(out_) == old);
  }
  ASSERT_TRUE(Done(Quantize(model_, folder_ / "new/", "int8")));  // the trailing slash is no part
  const auto want = Contents(folder_ / "new");
  for (const std::string& name : {out_, out_ + "/", out_ + "/."}) {
    fs::remove_all(out_);
    MakeOld();
    folder_.Put("out/more", "of the old one");
    chmod(out_.c_str(), 0750);
    ASSERT_TRUE(Done(Quantize(model_, name, "int8", {"--force"}))) << name;
    EXPECT_TRUE(Contents(out_) == want);
    EXPECT_EQ(fs::status(out_).permissions(), fs::perms(0750));
    EXPECT_EQ(folder_.CountFiles(), 3u);
  }
  // An empty folder is one too; a link to a folder is followed.
  fs::create_directory(folder_ / "empty");
  EXPECT_TRUE(
      Fails(Quantize(model_, folder_ / "empty", "int8"), 1, folder_ / "empty" + ": got an"));
  fs::create_directory_symlink("empty", folder_ / "link");
  ASSERT_TRUE(Done(Quantize(model_, folder_ / "link", "int8", {"--force"})));
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(Contents(folder_ / "empty") == want);
  EXPECT_EQ(folder_.CountFiles(), 5u);
}

// A wrong name costs nothing, --force or not.
TEST_F(QuantizeFailuresTest, WhatIsNoModelIsNeverReplaced) {
  fs::create_directory(folder_ / "photos");
  folder_.Put("photos/one", "1");
  const std::string file = folder_.Put("file", "old");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--force"}}) {
    const auto fails = [&](const std::string& out, const std::string& middle) {
      EXPECT_TRUE(Fails(Quantize(model_, out, "int8", more), 1, out + ": ", middle));
    };
    fails(folder_ / "photos", more.empty() ? "an existing folder" : "without config.json");
    fails(file, "got a file, want a folder");
    fails(file + "/out", "could not write: Not a directory");
    fails(folder_ / "none/out", "could not write: No such file or directory");
    fails("/", "holds ");
    EXPECT_EQ(Slurp(folder_ / "photos/one"), "1");
    EXPECT_EQ(Slurp(file), "old");
    EXPECT_EQ(folder_.CountFiles(), 3u);
  }
}

TEST_F(QuantizeFailuresTest, TheModelIsNeverLost) {
  fs::create_directory_symlink("model", folder_ / "link");
  folder_.Put("config.json", "{}");  // so that the folder around it looks like a model
  const auto old = Contents(model_);
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--force"}}) {
    for (const std::string& out : {model_, model_ + "/", model_ + "/.", folder_ / "link",
                                   folder_ / "link/../model", folder_.path()}) {
      for (const std::string& source : {model_, folder_ / "link"}) {
        EXPECT_TRUE(Fails(Quantize(source, out, "int8", more), 1, out + ": holds " + source));
        ASSERT_TRUE(Contents(model_) == old);
      }
    }
  }
  const Outcome here =
      Launch({.args = QuantizeArgs(".", "../model", "int8", {"--force"}), .folder = model_});
  EXPECT_TRUE(Fails(here, 1, "../model: holds ."));
  EXPECT_TRUE(Contents(model_) == old);
  EXPECT_EQ(folder_.CountFiles(), 3u);
  // A folder inside the model's is a new one.
  const Outcome inside = Launch({.args = QuantizeArgs(".", "int8", "int8"), .folder = model_});
  EXPECT_TRUE(Done(inside));
  fs::rename(model_ + "/int8", out_);
  EXPECT_TRUE(Contents(model_) == old);
  EXPECT_TRUE(Done(Hognose({"inspect", out_})));
}

TEST_F(QuantizeFailuresTest, TheDiskIsFull) {
  MakeOld();
  const auto old = Contents(out_);
  const rlim_t size = fs::file_size(out_ + "/model.safetensors");
  for (const std::string& out : {out_, folder_ / "new"}) {
    for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, size / 2, size - 1}) {
      const Outcome o =
          Launch({.args = QuantizeArgs(model_, out, "int4", {"--force"}), .max_file_bytes = limit});
      EXPECT_TRUE(Fails(o, 1, out + "/model.safetensors: could not write: File too large"));
      EXPECT_TRUE(Contents(out_) == old);
      EXPECT_EQ(folder_.CountFiles(), 2u);
    }
  }
  // Another file than the weights: the tokenizer is larger than they are here.
  folder_.Put("model/tokenizer.json", std::string(size + 100000, ' '));
  const Outcome o = Launch(
      {.args = QuantizeArgs(model_, out_, "int4", {"--force"}), .max_file_bytes = size + 50000});
  EXPECT_TRUE(Fails(o, 1, out_ + "/tokenizer.json: could not write: File too large"));
  EXPECT_TRUE(Contents(out_) == old);
  EXPECT_EQ(folder_.CountFiles(), 2u);
}

TEST_F(QuantizeFailuresTest, TheFolderIsClosed) {
  fs::create_directory(folder_ / "closed");
  ASSERT_TRUE(Done(Quantize(model_, folder_ / "closed/old", "int4")));
  const auto old = Contents(folder_ / "closed/old");
  const auto fails = [&](const std::string& out) {
    const Outcome o =
        Launch({.args = QuantizeArgs(model_, out, "int8", {"--force"}), .obey_permissions = true});
    EXPECT_TRUE(Fails(o, 1, out + ": could not write: Permission denied"));
    EXPECT_TRUE(Contents(folder_ / "closed/old") == old);
    EXPECT_FALSE(fs::exists(folder_ / "closed/new"));
  };
  chmod((folder_ / "closed/old").c_str(), 0555);
  fails(folder_ / "closed/old");
  chmod((folder_ / "closed/old").c_str(), 0755);
  chmod((folder_ / "closed").c_str(), 0555);
  fails(folder_ / "closed/old");
  fails(folder_ / "closed/new");
  chmod((folder_ / "closed").c_str(), 0755);
}

TEST_F(QuantizeFailuresTest, StandardOutputIsFull) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--json"}}) {
    const Outcome o =
        Launch({.args = QuantizeArgs(model_, out_, "int8", more), .output_path = "/dev/full"});
    EXPECT_TRUE(Fails(o, 1, "standard output: No space left on device"));
    EXPECT_TRUE(Done(Hognose({"inspect", out_})));  // the folder is no worse for it
    fs::remove_all(out_);
  }
}

// Ctrl-C in each part of the work. What the terminal shows tells the part.
class QuantizeInterruptTest : public QuantizeFailuresTest {
 protected:
  void Check(const std::string& model, const std::string& bar, std::vector<std::string> more) {
    if (!HaveTerminals()) return;
    SCOPED_TRACE(bar);
    MakeOld();
    const auto old = Contents(out_);
    const size_t files = folder_.CountFiles();
    more.push_back("--force");
    const Outcome o = Launch({.args = QuantizeArgs(model, out_, "int4", more),
                              .terminal = true,
                              .interrupt = [&](const Outcome& so_far) {
                                return so_far.err.find(bar + " [") != std::string::npos;
                              }});
    EXPECT_EQ(o.code, 130) << Describe(o);
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(o.err.find('\n', o.err.find('[')), std::string::npos) << o.err;  // no message
    EXPECT_TRUE(Contents(out_) == old);
    EXPECT_EQ(folder_.CountFiles(), files);
  }
};

TEST_F(QuantizeInterruptTest, WhileItMeasures) {
  std::string text;
  while (text.size() < 1000000) text += kEnglish;
  Check(kDemo, "perplexity before", {"--calibration", folder_.Put("text", text)});
}

TEST_F(QuantizeInterruptTest, WhileItMeasuresWhatItWrote) {
  std::string text;
  while (text.size() < 40000) text += kEnglish;
  Check(kDemo, "perplexity after", {"--calibration", folder_.Put("text", text)});
}

TEST_F(QuantizeInterruptTest, WhileItEncodes) {
  // Large enough that it isn't over before the signal arrives.
  constexpr size_t kRows = 4096, kColumns = 1024;
  std::vector<core::BFloat16> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = codecs::EncodeBF16(static_cast<float>(i * 7919 % 1009) - 500.0f);
  }
  const auto small = io::SafetensorsFile::Open(Fixture("mamba_basic") + "/model.safetensors");
  ASSERT_TRUE(small.ok());
  core::TensorMap tensors = small->tensors();
  for (int i = 0; i < 8; ++i) {
    tensors["layers." + std::to_string(i) + ".more.in_proj.weight"] = {
        values.data(), core::DType::kBF16, 2, {kRows, kColumns}};
  }
  fs::create_directory(folder_ / "large");
  WriteTensors(folder_ / "large/model.safetensors", tensors);
  folder_.Put("large/config.json", Slurp(model_ + "/config.json"));
  Check(folder_ / "large", "quantize", {});
}

// A model that computes the same as the bundled one, but whose in_proj holds a few columns 256
// times as large as the others: these take the codes of all columns of their group.
std::string ModelWithOutliers(const TestFolder& folder) {
  const std::string path = folder / "outliers";
  fs::copy(kDemo, path);
  const auto demo = io::SafetensorsFile::Open(kDemo + "/model.safetensors");
  EXPECT_TRUE(demo.ok());
  core::TensorMap tensors = demo->tensors();
  std::vector<std::vector<core::BFloat16>> matrices;
  std::vector<std::vector<float>> norms;
  for (auto& [name, tensor] : tensors) {
    const bool matrix = name.ends_with(".in_proj.weight");
    const bool norm = name.ends_with(".norm.weight") && !name.ends_with(".mixer.norm.weight");
    if (!matrix && !norm) continue;
    const size_t columns = tensor.shape[tensor.rank - 1], size = tensor.elements();
    const auto chosen = [&](size_t i) { return i % columns % 32 == 5; };
    if (norm) {  // both factors are exact
      const auto* first = tensor.As<float>();
      auto& values = norms.emplace_back(first, first + size);
      for (size_t i = 0; i < size; ++i) values[i] /= chosen(i) ? 256.0f : 1.0f;
      tensor.data = values.data();
      continue;
    }
    const auto* first = tensor.As<core::BFloat16>();
    auto& values = matrices.emplace_back(first, first + size);
    for (size_t i = 0; i < size; ++i) {
      if (chosen(i)) values[i] = codecs::EncodeBF16(codecs::Decode(values[i]) * 256.0f);
    }
    tensor.data = values.data();
  }
  WriteTensors(path + "/model.safetensors", tensors);
  return path;
}

TEST(QuantizeGateTest, IsMissed) {
  const TestFolder folder;
  const std::string text = folder.Put("text", kEnglish), out = folder / "out";
  const std::string model = ModelWithOutliers(folder);
  ASSERT_TRUE(Done(Quantize(kDemo, out, "int8")));
  const auto old = Contents(out);
  for (const std::string to : {"int4", "int8"}) {
    const Outcome o =
        Quantize(model, out, to, {"--calibration", text, "--gate", "--json", "--force"});
    EXPECT_TRUE(Fails(o, 1, "--gate: got a perplexity ", "% higher, want at most "));
    const auto report = io::ParseJson(o.out, "output");
    ASSERT_TRUE(report.ok()) << o.out;
    EXPECT_GT(Number(*report, "rise"), Number(*report, "allowed_rise"));
    const core::Value demo = Json(Hognose({"score", kDemo, "--text", text}));
    EXPECT_NEAR(Number(*report, "perplexity_before"), Number(demo, "perplexity"), 0.05);
    // What misses the gate isn't installed.
    EXPECT_TRUE(Contents(out) == old);
    EXPECT_TRUE(Fails(Quantize(model, folder / "new", to, {"--calibration", text, "--gate"}), 1,
                      "--gate: "));
    EXPECT_EQ(folder.CountFiles(), 3u);
  }
  // Without --gate the figures are only told.
  const core::Value report =
      Json(Quantize(model, folder / "new", "int4", {"--calibration", text, "--json"}));
  EXPECT_GT(Number(report, "rise"), 0.03);
  EXPECT_TRUE(Done(Hognose({"inspect", folder / "new"})));
}

// A file that ends too early, or goes on, is told in one line, wherever it was cut.
TEST(QuantizedFileTest, CutShort) {
  const TestFolder folder;
  const std::string ids = folder.Put("ids", "1 2 3");
  for (const std::string to : {"int8", "int4"}) {
    const std::string model = folder / to;
    ASSERT_TRUE(Done(Quantize(Fixture("mamba2_groups_4"), model, to)));
    const std::string path = model + "/model.safetensors", bytes = Slurp(path);
    ASSERT_TRUE(Done(Hognose({"score", model, "--ids", ids})));
    const auto check = [&](std::string_view part) {
      folder.Put(to + "/model.safetensors", part);
      EXPECT_TRUE(Fails(Hognose({"score", model, "--ids", ids}), 1, path + ": ")) << part.size();
    };
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 61) {
      check(std::string_view(bytes).substr(0, size));
    }
    check(std::string_view(bytes).substr(0, bytes.size() - 1));
    check(bytes + "x");
  }
}

}  // namespace
}  // namespace hognose::cli_test
