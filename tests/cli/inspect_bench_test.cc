// hognose inspect and hognose bench: fields, and numbers that must agree; help and version.
#include <filesystem>
#include <map>

#include "tests/cli/cli_test.h"

namespace hognose::cli_test {
namespace {

constexpr const char* kModelKeys =
    "path architecture layers width vocabulary embedding_rows head_rows tied_head "
    "tokenizer_entries "
    "parameters weight_bytes state_bytes run_bytes train_bytes tensors";

TEST(InspectTest, AModel) {
  const std::string path = Fixture("mamba_basic");
  const core::Value value = Json(Hognose({"inspect", path, "--json"}));
  EXPECT_EQ(Keys(value), kModelKeys);
  EXPECT_EQ(Text(value, "path"), path);
  EXPECT_EQ(Text(value, "architecture"), "mamba");
  EXPECT_EQ(Number(value, "layers"), 2.0);
  EXPECT_EQ(Number(value, "width"), 20.0);
  EXPECT_EQ(Number(value, "vocabulary"), 50.0);
  EXPECT_EQ(Number(value, "tokenizer_entries"), 0.0);
  // Two layers of E = 40 channels with K = 4 taps and N = 8 states, in f32.
  EXPECT_EQ(Number(value, "state_bytes"), 2.0 * 40 * (4 + 8) * 4);
  const core::Value::Array& tensors = *value.Find("tensors")->AsArray();
  double parameters = 0.0;
  for (const auto& tensor : tensors) {
    EXPECT_EQ(Keys(tensor), "name dtype shape");
    EXPECT_EQ(Text(tensor, "dtype"), "f32");
    double elements = 1.0;
    for (const auto& n : *tensor.Find("shape")->AsArray()) elements *= double(*n.AsInt());
    parameters += elements;
  }
  EXPECT_EQ(Number(value, "parameters"), parameters);
  EXPECT_EQ(Number(value, "weight_bytes"), 4.0 * parameters);
  EXPECT_GT(Number(value, "run_bytes"), 4.0 * parameters);
  EXPECT_GE(Number(value, "train_bytes"), 16.0 * parameters);
}

TEST(InspectTest, ForPeople) {
  const Outcome o = Hognose({"inspect", kDemo});
  EXPECT_TRUE(Done(o));
  const core::Value value = Json(Hognose({"inspect", kDemo, "--json"}));
  for (const auto& [name, member] : *value.AsObject()) {
    EXPECT_NE(o.out.find("\n" + name), name == "path" ? 0 : std::string::npos) << name;
  }
  EXPECT_NE(o.out.find(" MiB)\n"), std::string::npos) << o.out;
  for (const auto& tensor : *value.Find("tensors")->AsArray()) {
    EXPECT_NE(o.out.find("\n  " + Text(tensor, "name") + " "), std::string::npos);
  }
  EXPECT_EQ(o.err, "");
}

TEST(InspectTest, AStateFile) {
  const TestFolder folder;
  const std::string state = folder / "state";
  const core::Value run =
      Json(Hognose({"run", kDemo, "-p", "Hello", "-n", "5", "--json", "--state-out", state}));
  const core::Value value = Json(Hognose({"inspect", state, "--json"}));
  EXPECT_EQ(Keys(value), "path format version model position layers state_bytes tensors");
  EXPECT_EQ(Number(value, "position"), Number(run, "prompt_tokens") + Number(run, "tokens"));
  const core::Value model = Json(Hognose({"inspect", kDemo, "--json"}));
  EXPECT_EQ(Number(value, "layers"), Number(model, "layers"));
  const std::string layer = Text(value.Find("tensors")->AsArray()->front(), "name");
  EXPECT_EQ(layer, "layers.0.conv");
  const Outcome people = Hognose({"inspect", state});
  EXPECT_TRUE(Done(people));
  EXPECT_NE(people.out.find("position"), std::string::npos);
}

TEST(BenchTest, RowsInTheOrderAsked) {
  const std::vector<std::string> args = {"bench",  Fixture("mamba2_bf16"),
                                         "--json", "--prompt",
                                         "7,3",    "--generate",
                                         "5",      "--batch",
                                         "1",      "--repeats",
                                         "2",      "-t",
                                         "2"};
  const core::Value value = Json(Hognose(args));
  const auto* rows = value.AsArray();
  ASSERT_NE(rows, nullptr);
  ASSERT_EQ(rows->size(), 3u);
  const double tokens[] = {7.0, 3.0, 5.0};
  for (size_t i = 0; i < rows->size(); ++i) {
    const core::Value& row = (*rows)[i];
    EXPECT_EQ(Keys(row),
              "phase tokens batch threads dtype tokens_per_second seconds weight_bytes state_bytes "
              "bytes_per_second share_of_bandwidth");
    EXPECT_EQ(Text(row, "phase"), i < 2 ? "prompt" : "generate");
    EXPECT_EQ(Number(row, "tokens"), tokens[i]);
    EXPECT_EQ(Number(row, "batch"), 1.0);
    EXPECT_EQ(Number(row, "threads"), 2.0);
    EXPECT_EQ(Text(row, "dtype"), "bf16");
    EXPECT_GT(Number(row, "seconds"), 0.0);
    EXPECT_GT(Number(row, "weight_bytes"), 0.0);
    EXPECT_NEAR(Number(row, "tokens_per_second") * Number(row, "seconds"), tokens[i], 1e-6);
  }
}

TEST(BenchTest, ForPeople) {
  // The flag's value ends at the space: what follows is the model.
  const Outcome o = Hognose({"bench", "--prompt", "4", Fixture("mamba_basic"), "--generate", "3"});
  EXPECT_TRUE(Done(o));
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 3) << o.out;  // a head and two rows
  EXPECT_NE(o.out.find("tokens/s"), std::string::npos);
  EXPECT_NE(o.out.find("\ngenerate"), std::string::npos);
  const Outcome none =
      Hognose({"bench", Fixture("mamba_basic"), "--prompt", "0", "--generate", "0", "--json"});
  EXPECT_TRUE(Done(none));
  EXPECT_EQ(none.out, "[]\n");
}

// The rows of one prompt length, by group.
std::map<std::string, const core::Value*> ByGroup(const core::Value& rows, double tokens) {
  std::map<std::string, const core::Value*> groups;
  for (const auto& row : *rows.AsArray()) {
    if (Number(row, "tokens") == tokens) groups[Text(row, "group")] = &row;
  }
  return groups;
}

TEST(BenchTest, LayersSplitAPrompt) {
  const core::Value rows = Json(Hognose({"bench", Fixture("mamba2_bf16"), "--layers", "--json",
                                         "--prompt", "3,1", "--repeats", "3", "-t", "2"}));
  double weights = 0.0;
  for (const double tokens : {3.0, 1.0}) {
    const auto groups = ByGroup(rows, tokens);
    double seconds = 0.0, share = 0.0;
    for (const auto& [name, row] : groups) {
      EXPECT_EQ(Keys(*row),
                "group tokens seconds share weight_bytes state_bytes bytes_per_second "
                "share_of_bandwidth operations_per_second share_of_multiply_rate");
      if (name == "all") continue;
      seconds += Number(*row, "seconds");
      share += Number(*row, "share");
    }
    for (const char* name : {"embedding", "norm", "in_proj", "conv", "scan", "out_proj", "head"}) {
      EXPECT_TRUE(groups.contains(name)) << name;
    }
    EXPECT_FALSE(groups.contains("x_proj"));  // Mamba-2 has none
    const core::Value& all = *groups.at("all");
    // Medians of each group need not add up to the median of all.
    EXPECT_GE(seconds * 1.001, Number(all, "seconds"));
    EXPECT_NEAR(share, seconds / Number(all, "seconds"), 1e-6);
    EXPECT_GT(Number(*groups.at("in_proj"), "operations_per_second"), 0.0);
    EXPECT_TRUE(groups.at("norm")->Find("bytes_per_second")->is_null());
    weights = Number(all, "weight_bytes");  // the same for one piece of any length
    EXPECT_EQ(weights, Number(*groups.at("in_proj"), "weight_bytes") +
                           Number(*groups.at("out_proj"), "weight_bytes") +
                           Number(*groups.at("head"), "weight_bytes"));
  }
  EXPECT_EQ(Number(rows.AsArray()->front(), "tokens"), 3.0);  // in the order asked
  const Outcome people = Hognose({"bench", Fixture("mamba_basic"), "--layers", "--prompt", "2"});
  EXPECT_TRUE(Done(people));
  EXPECT_NE(people.out.find("\nx_proj "), std::string::npos) << people.out;
  EXPECT_NE(people.out.find("% of multiply"), std::string::npos);
}

TEST(BenchTest, MachineMeasuresItsLimits) {
  const core::Value value =
      Json(Hognose({"bench", "--machine", "--json", "-t", "2", "--repeats", "1"}));
  EXPECT_EQ(Keys(value), "cpu cores target targets l1d_bytes l2_bytes l3_bytes read multiply");
  const auto& reads = *value.Find("read")->AsArray();
  ASSERT_FALSE(reads.empty());
  for (const auto& row : reads) {
    EXPECT_EQ(Keys(row), "bytes threads bytes_per_second");
    EXPECT_GT(Number(row, "bytes_per_second"), 0.0);
  }
  const auto& multiplies = *value.Find("multiply")->AsArray();
  ASSERT_EQ(multiplies.size(), 6u);  // f32, bf16 and int8 with one and with two threads
  EXPECT_EQ(Text(multiplies[0], "dtype"), "f32");
  EXPECT_EQ(Number(multiplies[0], "threads"), 1.0);
  EXPECT_EQ(Text(multiplies[5], "dtype"), "int8");
  EXPECT_EQ(Number(multiplies[5], "threads"), 2.0);
  for (const auto& row : multiplies) {
    EXPECT_EQ(Keys(row), "dtype instruction threads operations_per_second");
    // Null where the target has no instruction for the type.
    EXPECT_EQ(row.Find("instruction")->is_null(), row.Find("operations_per_second")->is_null());
  }
  bool listed = false;
  for (const auto& name : *value.Find("targets")->AsArray()) {
    listed |= *name.AsString() == Text(value, "target");
  }
  EXPECT_TRUE(listed);
}

TEST(BenchTest, OneTableAtATime) {
  const Outcome both = Hognose({"bench", "--machine", "--layers"});
  EXPECT_EQ(both.code, 2);
  EXPECT_EQ(both.err, "--machine: got --layers too, want one table\n");
  const Outcome model = Hognose({"bench", "--machine", kDemo});
  EXPECT_EQ(model.code, 2);
  EXPECT_TRUE(model.err.starts_with("--machine: got the model ")) << model.err;
}

TEST(HelpTest, ListsEveryFlagWithItsDefault) {
  const Outcome all = Hognose({"--help"});
  EXPECT_TRUE(Done(all));
  for (const std::string command : {"run", "score", "tokenize", "inspect", "bench"}) {
    EXPECT_NE(all.out.find("\n  " + command + " "), std::string::npos) << all.out;
    const Outcome o = Hognose({command, "--help"});
    EXPECT_TRUE(Done(o));
    EXPECT_EQ(o.err, "");
    EXPECT_NE(o.out.find("--json"), std::string::npos) << o.out;
    EXPECT_EQ(Hognose({command, "-h"}).out, o.out);
  }
  const std::string run = Hognose({"run", "--help"}).out;
  const std::pair<std::string, std::string> kFlags[] = {{"-p,--prompt TEXT", ""},
                                                        {"-n,--tokens INT", "128"},
                                                        {"--temperature REAL", "0.8"},
                                                        {"--top-k INT", "40"},
                                                        {"--top-p REAL", "0.95"},
                                                        {"--min-p REAL", "0.05"},
                                                        {"--repeat-penalty REAL", "1"},
                                                        {"--seed INT ", ""},
                                                        {"--stop TEXT", ""},
                                                        {"--ignore-eos", ""},
                                                        {"--echo", ""},
                                                        {"--state-in PATH", ""},
                                                        {"--state-out PATH", ""},
                                                        {"-t,--threads INT ", ""},
                                                        {"--json", ""},
                                                        {"--strict", ""}};
  for (const auto& [flag, value] : kFlags) {
    const size_t at = run.find("  " + flag);
    ASSERT_NE(at, std::string::npos) << flag << "\n" << run;
    const std::string line = run.substr(at, run.find('\n', at) - at);
    EXPECT_NE(line.find(value), std::string::npos) << line;
  }
  const Outcome version = Hognose({"--version"});
  EXPECT_TRUE(Done(version));
  EXPECT_TRUE(version.out.starts_with("hognose ")) << version.out;
}

}  // namespace
}  // namespace hognose::cli_test
