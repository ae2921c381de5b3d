// Documents that share a row, held-out losses, and what data are refused.
#include "train/language_task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/status.h"
#include "train/new_model.h"
#include "train/test_run.h"

namespace hognose::train {
namespace {

using testing::CloseToScale;
using testing::kEpsF32;
using testing::SameBits;

constexpr int32_t kEnd = 40;  // the end-of-text id

// A letter is a token: a is 0, z is 25.
io::Tokenizer Letters() {
  std::string vocab;
  for (char c = 'a'; c <= 'z'; ++c) {
    vocab += (vocab.empty() ? "\"" : ",\"") + std::string(1, c) + "\":" + std::to_string(c - 'a');
  }
  auto tokenizer = io::Tokenizer::Parse(
      R"({"model":{"type":"BPE","vocab":{)" + vocab + R"(},"merges":[]}})", "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

std::string Ids(const std::string& letters, bool end) {
  std::string text;
  for (const char c : letters) text += std::to_string(c - 'a') + " ";
  return end ? text + std::to_string(kEnd) : text;
}

struct Pass {
  double loss = 0.0;  // the sum
  size_t targets = 0;
  double evaluation = 0.0;
  std::vector<float> gradients = {};  // of the sum
};

class DocumentsTest : public ::testing::TestWithParam<const char*> {
 protected:
  // All rows of one step over the data, in sequential order.
  Pass Run(const std::string& path, size_t rows, size_t length, bool end) {
    RunOptions o{.model = GetParam()};
    o.task = {.order = Order::kSequential, .batch = rows, .length = length};
    const TokenOptions tokens{.tokenizer = &tokenizer_,
                              .vocab = 48,
                              .end_of_text = end ? std::optional(kEnd) : std::nullopt};
    TestRun run(path, o, tokens);
    const core::Vec<float> gradients = run.parameters().gradients();
    std::fill_n(gradients.data, gradients.size, 0.0f);
    Pass pass{.targets = run.task().Targets(0), .evaluation = run.task().Evaluate()};
    for (size_t row = 0; row < rows; ++row) pass.loss += run.task().Row(0, row, 1.0f, 0);
    pass.gradients = run.Gradients();
    return pass;
  }
  std::string Jsonl(const std::vector<std::string>& documents) {
    std::string text;
    for (const std::string& d : documents) text += "{\"text\": \"" + d + "\"}\n";
    return files_.Put("documents.jsonl", text);
  }
  // The sum of passes over each document alone.
  Pass Separate(const std::vector<std::string>& documents, bool end) {
    Pass sum;
    for (const std::string& d : documents) {
      if (d.size() + end < 2) continue;  // nothing to predict
      const size_t length = d.size() + end - 1;
      const Pass pass = Run(files_.Put("document", Ids(d, end)), 1, length, end);
      EXPECT_EQ(pass.targets, length);
      EXPECT_NEAR(pass.evaluation, pass.loss / static_cast<double>(length), 1e-6 * pass.loss);
      sum.loss += pass.loss;
      sum.targets += pass.targets;
      sum.gradients.resize(pass.gradients.size());
      for (size_t i = 0; i < pass.gradients.size(); ++i) sum.gradients[i] += pass.gradients[i];
    }
    return sum;
  }

  const io::TestFolder files_;
  const io::Tokenizer tokenizer_ = Letters();
};

// Both sides add the same terms of at most 24 rows, in another order: 24 roundings of eps / 2 of
// the sum of their sizes, and that of an entry is at most 24 of the largest ones.
constexpr double kOtherOrder = 24 * 24 * kEpsF32 / 2;

TEST_P(DocumentsTest, PackedIsTheSumOfSeparate) {
  const std::vector<std::string> documents = {"abcde", "f", "ghijklmn", "op", "qqr"};
  for (const bool end : {true, false}) {
    size_t tokens = 0;
    for (const std::string& d : documents) tokens += d.size() + end;
    const Pass want = Separate(documents, end);
    const Pass got = Run(Jsonl(documents), 1, tokens - 1, end);
    EXPECT_EQ(got.targets, want.targets) << end;
    EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss) << end;
    EXPECT_NEAR(got.evaluation, want.loss / static_cast<double>(want.targets), 1e-6) << end;
    EXPECT_TRUE(CloseToScale(got.gradients, want.gradients, kOtherOrder)) << end;
    // The same tokens as one document are something else.
    std::string all;
    for (const std::string& d : documents) all += Ids(d, end) + " ";
    const Pass leaks = Run(files_.Put("all", all), 1, tokens - 1, end);
    EXPECT_EQ(leaks.targets, tokens - 1);
    EXPECT_FALSE(CloseToScale(leaks.gradients, want.gradients, kOtherOrder)) << end;
  }
}

// What a document does doesn't depend on the others in its row, neither before it nor behind.
TEST_P(DocumentsTest, NeighboursDoNotMatter) {
  const Pass first = Run(Jsonl({"abcd", "efgh"}), 1, 9, true);
  const Pass second = Run(Jsonl({"abcd", "wxyz"}), 1, 9, true);
  const Pass apart = Separate({"efgh"}, true), other = Separate({"wxyz"}, true);
  const Pass same = Separate({"abcd"}, true);
  EXPECT_NEAR(first.loss - apart.loss, same.loss, 1e-5);
  EXPECT_NEAR(second.loss - other.loss, same.loss, 1e-5);
}

// A document that ends with the row: the token behind it is another's.
TEST_P(DocumentsTest, TheLastTokenOfARow) {
  const std::vector<std::string> documents = {"abc", "def", "ghi", "x"};
  const Pass got = Run(Jsonl(documents), 3, 4, true);
  const Pass want = Separate({"abc", "def", "ghi"}, true);
  EXPECT_EQ(got.targets, 9u);
  EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
  EXPECT_TRUE(CloseToScale(got.gradients, want.gradients, kOtherOrder));
}

TEST_P(DocumentsTest, EvaluationIsByWindows) {
  const std::string ids = RandomIds(2, 26, 48);
  // Windows of 10, 10 and 5 targets.
  RunOptions o{.model = GetParam()};
  o.task = {.length = 10};
  TestRun run(files_.Put("ids", ids), o);
  double sum = 0.0;
  std::vector<std::string> words;
  for (size_t at = 0; at < ids.size(); at = ids.find(' ', at) + 1) {
    words.push_back(ids.substr(at, ids.find(' ', at) - at));
  }
  ASSERT_EQ(words.size(), 26u);
  for (size_t begin = 0; begin < 25; begin += 10) {
    const size_t length = std::min<size_t>(10, 25 - begin);
    std::string window;
    for (size_t i = 0; i <= length; ++i) window += words[begin + i] + " ";
    sum += Run(files_.Put("window", window), 1, length, false).loss;
  }
  EXPECT_EQ(run.task().Evaluate(), sum / 25);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DocumentsTest,
                         ::testing::Values("mamba_basic", "mamba2_basic", "falcon_mamba_basic"),
                         [](const auto& info) { return std::string(info.param); });

// F3 of other engines: gradients were NaN where L was no multiple of a chunk.
TEST(LanguageTaskTest, AnyLengthHasFiniteGradients) {
  const io::TestFolder files;
  const std::string data = files.Put("ids", RandomIds(4, 300, 48));
  for (const char* model : {"mamba_basic", "mamba2_basic", "mamba2_groups_4"}) {
    for (const size_t length : {1, 2, 3, 31, 255, 256, 257}) {
      RunOptions o{.model = model};
      o.task = {.batch = 1, .length = length, .steps = 1};
      TestRun run(data, o);
      const StepResult result = run.Step();
      EXPECT_TRUE(std::isfinite(result.grad_norm)) << model << " " << length;
      EXPECT_GT(result.grad_norm, 0.0) << model << " " << length;
    }
  }
}

// What a block keeps of a row for the backward pass is some multiple of the widths, not the state,
// which would be [E, N] floats; with layers' checkpoints it is the block's input.
TEST(LanguageTaskTest, StatesAreNotKept) {
  constexpr size_t kWidth = 32, kStates = 64, kRows = 512;
  core::ThreadPool pool(1);
  for (const char* architecture : {"mamba", "mamba2"}) {
    const auto bytes = [&](size_t layers, size_t rows, models::Checkpointing checkpointing) {
      auto config = MakeConfig({.architecture = architecture,
                                .width = kWidth,
                                .layers = layers,
                                .states = kStates,
                                .head_dim = 16});
      EXPECT_TRUE(config.ok());
      config = With(*config, {{"vocab_size", 40}});
      const auto made = InitialTensors(*config, "flags", 1);
      EXPECT_TRUE(made.ok());
      const auto model = models::Build({*config, "flags", made->tensors, "new"});
      EXPECT_TRUE(model.ok());
      const auto pass = models::LanguageModelPass::Create(
          *model, {pool}, {.rows = rows, .checkpointing = checkpointing, .exact = true});
      EXPECT_TRUE(pass.ok());
      return pass->bytes();
    };
    const auto of_a_block = [&](models::Checkpointing c) {
      return (bytes(5, 2 * kRows, c) - bytes(5, kRows, c) -
              (bytes(4, 2 * kRows, c) - bytes(4, kRows, c))) /
             kRows;
    };
    EXPECT_LT(of_a_block(models::Checkpointing::kNone), 2 * kWidth * kStates * sizeof(float) / 4);
    EXPECT_EQ(of_a_block(models::Checkpointing::kLayer), kWidth * sizeof(float));
  }
}

TEST(LanguageTaskTest, Refusals) {
  const io::TestFolder files;
  const io::Tokenizer tokenizer = Letters();
  core::ThreadPool pool(1);
  const core::Value config = core::Value::Object{};
  const auto load = [&](const std::string& path) {
    auto data = TokenData::Load(path, {.tokenizer = &tokenizer, .vocab = 48});
    EXPECT_TRUE(data.ok()) << data.status().message();
    return std::move(*data);
  };
  const TokenData good = load(files.Put("good", "1 2 3 4 5"));
  const TokenData one = load(files.Put("one", "7"));
  const TokenData lonely =
      load(files.Put("lonely.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"));
  const auto status = [&](const TokenData& data, const TokenData* evaluation, size_t length) {
    return LanguageTask::Create({pool}, config, "c", data, evaluation, {.length = length}).status();
  };
  EXPECT_TRUE(status(good, &good, 4).ok());
  EXPECT_TRUE(testing::FailsAt(status(good, &one, 4), files / "one: got 1 token", {"want two"}));
  EXPECT_TRUE(testing::FailsAt(status(good, &lonely, 4), files / "lonely.jsonl: got 2 tokens",
                               {"a document of its own"}));
  EXPECT_TRUE(testing::FailsAt(status(lonely, nullptr, 1), files / "lonely.jsonl: ", {}));
  EXPECT_TRUE(testing::FailsAt(status(good, nullptr, 5), files / "good: got 5 tokens",
                               {"want at least 6"}));
}

}  // namespace
}  // namespace hognose::train
