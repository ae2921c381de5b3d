// hognose score: logits against the fixtures' float64 recurrences, and sums over them.
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "io/npy.h"
#include "io/safetensors.h"
#include "tests/cli/cli_test.h"
#include "tests/support/compare.h"

namespace hognose::cli_test {
namespace {

using testing::CloseToScale;

const char* const kFixtures[] = {"falcon_mamba_basic", "mamba2_basic", "mamba2_bf16",
                                 "mamba2_shards",      "mamba_basic",  "mamba_padded_vocab"};

std::string Join(const std::vector<int64_t>& ids, std::string_view between) {
  std::string text;
  for (const int64_t id : ids) {
    if (!text.empty()) text += between;
    text += std::to_string(id);
  }
  return text;
}

class ScoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  ScoreTest() : model_(Fixture(GetParam())) {
    auto file = io::SafetensorsFile::Open(model_ + "/expected.safetensors");
    EXPECT_TRUE(file.ok());
    expected_ = std::move(*file);
    const auto& ids = expected_.tensors().find("ids")->second;
    const auto* first = static_cast<const int64_t*>(ids.data);
    ids_.assign(first, first + ids.elements());
    ids_path_ = folder_.Put("ids", Join(ids_, " "));
  }

  // Scores the fixture's ids and returns the logits.
  std::vector<float> Logits(std::vector<std::string> more) {
    std::vector<std::string> args = {"score", model_, "--ids", ids_path_, "--logits", npy_};
    args.insert(args.end(), more.begin(), more.end());
    const core::Value value = Json(Hognose(args));
    EXPECT_EQ(Keys(value), "tokens nll perplexity");
    EXPECT_EQ(Number(value, "tokens"), static_cast<double>(ids_.size()));
    nll_ = Number(value, "nll");
    EXPECT_NEAR(Number(value, "perplexity"), std::exp(nll_), 1e-9 * std::exp(nll_));
    const auto array = io::OpenNpy(npy_);
    EXPECT_TRUE(array.ok());
    const core::TensorView& t = array->tensor;
    EXPECT_EQ(core::ToString(t), "f32 " + core::ShapeToString(std::vector{ids_.size(), Columns()}));
    return {t.As<float>(), t.As<float>() + t.elements()};
  }
  size_t Columns() const { return expected_.tensors().find("logits")->second.shape[1]; }

  TestFolder folder_;
  std::string model_, ids_path_, npy_ = folder_ / "logits.npy";
  io::SafetensorsFile expected_;
  std::vector<int64_t> ids_;
  double nll_ = 0.0;
};

TEST_P(ScoreTest, LogitsEqualTheRecurrence) {
  const auto& want = expected_.tensors().find("logits")->second;
  ASSERT_EQ(want.shape[0], ids_.size());
  for (const std::string piece : {"1", "7", "256"}) {
    const auto got = Logits({"--activations", "f32", "--piece", piece});
    EXPECT_TRUE(CloseToScale(got, {want.As<float>(), want.elements()}, 1e-4)) << piece;
    const auto rounded = Logits({"--piece", piece});
    EXPECT_TRUE(CloseToScale(rounded, {want.As<float>(), want.elements()}, 3e-2)) << piece;
  }
}

TEST_P(ScoreTest, NllIsThatOfTheLogits) {
  const auto logits = Logits({});
  double sum = 0.0;
  for (size_t i = 0; i + 1 < ids_.size(); ++i) {
    double total = 0.0;
    const float* row = logits.data() + i * Columns();
    for (size_t v = 0; v < Columns(); ++v) total += std::exp(static_cast<double>(row[v]));
    sum += std::log(total) - row[ids_[i + 1]];
  }
  // Both sums are in double; the logits are the same numbers.
  EXPECT_NEAR(nll_, sum / static_cast<double>(ids_.size() - 1), 1e-9);
}

TEST_P(ScoreTest, ThreadsNeverChangeABit) {
  Logits({"-t", "1"});
  const std::string one = Slurp(npy_);
  const double nll = nll_;
  Logits({"-t", "3"});
  EXPECT_EQ(Slurp(npy_), one);
  EXPECT_EQ(nll_, nll);
  EXPECT_EQ(folder_.CountFiles(), 2u);
}

TEST_P(ScoreTest, IdsComeInAnyShape) {
  const std::string want = Hognose({"score", model_, "--ids", ids_path_}).out;
  for (const std::string_view between : {",", ", ", "\n", "\r\n", "\t", " ,\n"}) {
    const std::string text = Join(ids_, between);
    EXPECT_EQ(Hognose({"score", model_, "--ids", folder_.Put("x", text)}).out, want) << between;
    EXPECT_EQ(Hognose({"score", model_, "--ids", folder_.Put("x", "\n" + text + ",\n")}).out, want);
    EXPECT_EQ(Hognose({"score", model_, "--ids", "-"}, text).out, want);
  }
}

TEST_P(ScoreTest, OneTokenPredictsNothing) {
  const core::Value value = Json(Hognose({"score", model_, "--ids", folder_.Put("x", "3")}));
  EXPECT_EQ(Keys(value), "tokens nll perplexity");
  EXPECT_EQ(Number(value, "tokens"), 1.0);
  EXPECT_TRUE(value.Find("nll")->is_null());
  EXPECT_TRUE(value.Find("perplexity")->is_null());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ScoreTest, ::testing::ValuesIn(kFixtures),
                         [](const auto& info) { return info.param; });

TEST(ScoreTextTest, EqualsItsIds) {
  const TestFolder folder;
  const std::string text = folder.Put("text", "He said \u201Cno\u201D, and left.\n\n\U0001F600\n");
  const Outcome tokens = Hognose({"tokenize", kDemo}, Slurp(text));
  ASSERT_TRUE(Done(tokens));
  const std::string ids = folder.Put("ids", tokens.out);
  const Outcome by_text = Hognose({"score", kDemo, "--text", text});
  EXPECT_TRUE(Done(by_text));
  EXPECT_EQ(by_text.out, Hognose({"score", kDemo, "--ids", ids}).out);
  EXPECT_EQ(by_text.out, Hognose({"score", kDemo, "--text", "-"}, Slurp(text)).out);
  EXPECT_EQ(by_text.out, Hognose({"score", kDemo, "--ids", ids, "--json"}).out);
  EXPECT_EQ(by_text.err, "");
}

// English is likelier than its letters in any order.
TEST(ScoreTextTest, TellsTextFromNoise) {
  const std::string text = "There was no doubt that she had been in the house before.";
  std::string noise = text;
  std::sort(noise.begin(), noise.end());
  const auto nll = [](const std::string& t) {
    return Number(Json(Hognose({"score", kDemo, "--text", "-"}, t)), "nll");
  };
  EXPECT_LT(nll(text), 4.0);
  EXPECT_GT(nll(noise), 5.0);
}

}  // namespace
}  // namespace hognose::cli_test
