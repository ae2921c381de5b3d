// Generation on the bundled model: ends, and continuations from a state file.
#include "runtime/generate.h"

#include <gtest/gtest.h>

#include "runtime/state_file.h"
#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

constexpr size_t kTokens = 30;

struct Made {
  std::vector<int32_t> ids;
  std::string text;
  StopReason reason = StopReason::kLength;
};

class Generates : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = LoadModel(kDemo); }
  static void TearDownTestSuite() { model_.reset(); }

  std::vector<int32_t> Prompt(std::string_view text) {
    auto ids = model_->tokenizer->Encode(text);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return *ids;
  }

  // Continues `made`, as `run` does.
  void Continue(Session& session, Sampler& sampler, TextStream& text, size_t tokens, Made* made,
                bool ignore_eos = true) {
    auto result = Generate(session, sampler, text,
                           {.max_tokens = tokens, .ignore_eos = ignore_eos, .feed_last = true},
                           [&](std::string_view piece) { return made->text += piece, true; });
    ASSERT_TRUE(result.ok()) << result.status().message();
    made->ids.insert(made->ids.end(), result->ids.begin(), result->ids.end());
    made->reason = result->reason;
  }

  void Finish(TextStream& text, Made* made) {
    auto rest = text.Finish();
    ASSERT_TRUE(rest.ok());
    made->text += *rest;
  }

  Made OneRun(const SamplerOptions& options, const std::vector<std::string>& stops,
              const std::vector<bool>& drawable) {
    Made made;
    Session session = NewSession(model_, {.piece = 16});
    Sampler sampler(options, drawable, 7);
    TextStream text(*model_->tokenizer, stops);
    const auto prompt = Prompt("Once upon a time");
    EXPECT_TRUE(session.Prefill(prompt).ok());
    for (const int32_t id : prompt) sampler.Accept(id);
    Continue(session, sampler, text, kTokens, &made);
    Finish(text, &made);
    return made;
  }

  // Everything is new in the second half but the file.
  Made TwoRuns(const SamplerOptions& options, const std::vector<std::string>& stops,
               const std::vector<bool>& drawable, size_t split, const std::string& path) {
    Made made;
    {
      Session session = NewSession(model_, {.piece = 16});
      Sampler sampler(options, drawable, 7);
      TextStream text(*model_->tokenizer, stops);
      const auto prompt = Prompt("Once upon a time");
      EXPECT_TRUE(session.Prefill(prompt).ok());
      for (const int32_t id : prompt) sampler.Accept(id);
      Continue(session, sampler, text, split, &made);
      const auto written = WriteState(path, session, sampler.state(), text.Save());
      EXPECT_TRUE(written.ok()) << written.message();
    }
    if (made.reason == StopReason::kStop) return made;
    Session session = NewSession(model_, {.piece = 16});
    auto saved = ReadState(path, session);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
    session.Restore(saved->session);
    Sampler sampler(options, drawable, 99);
    sampler.Restore(saved->sampler);
    TextStream text(*model_->tokenizer, stops);
    EXPECT_TRUE(text.Restore(saved->text).ok());
    Continue(session, sampler, text, kTokens - split, &made);
    Finish(text, &made);
    return made;
  }

  static SharedModel model_;
};

SharedModel Generates::model_;

TEST_F(Generates, AContinuationEqualsOneRunAtEverySplit) {
  const io::TestFolder folder;
  const auto drawable = DrawableTokens(*model_, /*ignore_eos=*/true);
  const SamplerOptions greedy = {.temperature = 0.0},
                       penalised = {.temperature = 1.2, .top_k = 0, .repeat_penalty = 1.3};
  using Case = std::pair<SamplerOptions, std::vector<std::string>>;
  for (const auto& [options, stops] :
       {Case{greedy, {}}, Case{{}, {}}, Case{penalised, {"never in a text", "e t", "\n\n\n"}}}) {
    const Made want = OneRun(options, stops, drawable);
    EXPECT_TRUE(want.ids.size() == kTokens || want.reason == StopReason::kStop);
    for (size_t split = 0; split <= kTokens; ++split) {
      const Made got = TwoRuns(options, stops, drawable, split, folder / "state");
      ASSERT_EQ(got.ids, want.ids) << split;
      ASSERT_EQ(got.text, want.text) << split;
    }
  }
}

// The state with its logits is enough: regenerating feeds no token (fault C2).
TEST_F(Generates, ARestoredStateDrawsAtOnce) {
  const auto drawable = DrawableTokens(*model_, true);
  Session session = NewSession(model_, {.piece = 16});
  ASSERT_TRUE(session.Prefill(Prompt("The little dog")).ok());
  auto saved = session.NewState();
  ASSERT_TRUE(saved.ok());
  saved->CopyFrom(session.state());
  std::vector<Made> runs(10);
  for (Made& made : runs) {
    session.Restore(*saved);
    Sampler sampler({.temperature = 0.0}, drawable, 1);
    TextStream text(*model_->tokenizer, {});
    Continue(session, sampler, text, 12, &made);
    EXPECT_EQ(session.position(), saved->position + 12);
    EXPECT_EQ(made.ids, runs[0].ids);
    ASSERT_TRUE(session.Prefill(Prompt("Another text")).ok());
  }
}

TEST_F(Generates, EndsAtTheEndOfText) {
  const auto all = DrawableTokens(*model_, false);
  const int32_t eos = model_->eos_ids.at(0);
  // A sampler that can draw nothing else.
  std::vector<bool> only_eos(all.size(), false);
  only_eos[static_cast<size_t>(eos)] = true;
  Session session = NewSession(model_, {.piece = 16});
  ASSERT_TRUE(session.Prefill(Prompt("Once")).ok());
  const uint64_t position = session.position();
  Sampler sampler({}, only_eos, 1);
  TextStream text(*model_->tokenizer, {});
  const auto before = sampler.state();
  Made made;
  Continue(session, sampler, text, 5, &made, /*ignore_eos=*/false);
  EXPECT_EQ(made.reason, StopReason::kEos);
  EXPECT_TRUE(made.ids.empty());
  EXPECT_EQ(session.position(), position);
  EXPECT_EQ(sampler.state().rng, before.rng) << "a continuation must draw the end again";
  EXPECT_TRUE(all[static_cast<size_t>(eos)]);
  EXPECT_FALSE(DrawableTokens(*model_, true)[static_cast<size_t>(eos)]);
}

TEST_F(Generates, StopsWhenTheSinkSaysSo) {
  const auto drawable = DrawableTokens(*model_, true);
  for (const bool feed_last : {false, true}) {
    Session session = NewSession(model_, {.piece = 16});
    ASSERT_TRUE(session.Prefill(Prompt("Once upon a time")).ok());
    const uint64_t position = session.position();
    Sampler sampler({}, drawable, 1);
    TextStream text(*model_->tokenizer, {});
    size_t calls = 0;
    const auto made = Generate(session, sampler, text,
                               {.max_tokens = 20, .ignore_eos = true, .feed_last = feed_last},
                               [&](std::string_view) { return ++calls < 4; });
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->reason, StopReason::kInterrupted);
    EXPECT_EQ(made->ids.size(), 4u);
    EXPECT_EQ(session.position(), position + (feed_last ? 4 : 3));
  }
}

TEST_F(Generates, NothingIsDrawnForNoTokens) {
  const auto drawable = DrawableTokens(*model_, true);
  Session session = NewSession(model_, {.piece = 16});
  ASSERT_TRUE(session.Prefill(Prompt("Once")).ok());
  Sampler sampler({}, drawable, 1);
  TextStream text(*model_->tokenizer, {});
  Made made;
  Continue(session, sampler, text, 0, &made);
  EXPECT_TRUE(made.ids.empty());
  EXPECT_EQ(made.reason, StopReason::kLength);
}

// A model of one token, which ends every text: ignoring it leaves nothing to draw, so it still
// ends.
TEST(Drawable, IsNeverEmpty) {
  auto tiny = testing::MakeTiny(testing::TinyKind::kMamba);
  tiny.Set("vocab_size", 1);
  tiny.Set("eos_token_id", 0);
  const io::TestFolder folder;
  WriteModelFolder(folder, tiny);
  const auto model = LoadModel(folder.path());
  const auto drawable = DrawableTokens(*model, /*ignore_eos=*/true);
  EXPECT_EQ(std::count(drawable.begin(), drawable.end(), true), 1);
}

}  // namespace
}  // namespace hognose::runtime
