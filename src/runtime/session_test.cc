#include "runtime/session.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>

#include "core/fp_env.h"
#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

using testing::SameBits;

class Sessions : public ::testing::TestWithParam<std::string_view> {
 protected:
  SharedModel model_ = LoadFixture(GetParam());
  std::vector<int32_t> ids_ = RandomIds(*model_, 40, 1);
};

TEST_P(Sessions, BeginEmptyAndCountTokens) {
  Session session = NewSession(model_);
  EXPECT_EQ(session.position(), 0u);
  EXPECT_TRUE(session.logits().empty());
  ASSERT_TRUE(session.Prefill({}).ok());
  EXPECT_TRUE(session.logits().empty());
  ASSERT_TRUE(session.Prefill(ids_).ok());
  EXPECT_EQ(session.position(), 40u);
  EXPECT_EQ(session.logits().size(), model_->lm.logits_size());
  ASSERT_TRUE(session.Step(ids_[0]).ok());
  EXPECT_EQ(session.position(), 41u);
}

TEST_P(Sessions, RefuseIdsOutsideAndFeedNothing) {
  Session session = NewSession(model_, {.piece = 4});
  ASSERT_TRUE(session.Prefill(ids_).ok());
  const auto before = Memory(session.state());
  const auto limit = static_cast<int32_t>(model_->lm.input_ids());
  for (const int32_t wrong : {limit, -1, INT32_MAX, INT32_MIN}) {
    // The last of many: nothing in front of it is fed either.
    std::vector<int32_t> ids = ids_;
    ids.back() = wrong;
    const std::string got =
        "token 39: got id " + std::to_string(wrong) + ", want 0 to " + std::to_string(limit - 1);
    EXPECT_EQ(session.Prefill(ids).message(), got);
    EXPECT_EQ(session.Score(ids, [](size_t, auto) { return true; }).message(), got);
    EXPECT_FALSE(session.Step(wrong).ok());
    EXPECT_TRUE(SameBits(Memory(session.state()), before));
  }
  EXPECT_TRUE(session.Step(limit - 1).ok());
}

TEST_P(Sessions, ResetIsANewSessionBitForBit) {
  Session used = NewSession(model_);
  ASSERT_TRUE(used.Prefill(ids_).ok());
  used.Reset();
  Session fresh = NewSession(model_);
  EXPECT_TRUE(used.logits().empty());
  EXPECT_TRUE(SameBits(Memory(used.state()), Memory(fresh.state())));
  ASSERT_TRUE(used.Prefill(ids_).ok());
  ASSERT_TRUE(fresh.Prefill(ids_).ok());
  EXPECT_TRUE(SameBits(Memory(used.state()), Memory(fresh.state())));
}

// Save in the middle of a prompt, run another text, restore: ten times the same bits (fault C3).
TEST_P(Sessions, RestoreIsExactAgainAndAgain) {
  const std::span<const int32_t> ids(ids_);
  Session session = NewSession(model_);
  ASSERT_TRUE(session.Prefill(ids).ok());
  const auto want = Memory(session.state());
  session.Reset();
  ASSERT_TRUE(session.Prefill(ids.first(17)).ok());
  auto saved = session.NewState();
  ASSERT_TRUE(saved.ok());
  saved->CopyFrom(session.state());
  const auto middle = Memory(session.state());
  for (uint64_t round = 0; round < 10; ++round) {
    ASSERT_TRUE(session.Prefill(RandomIds(*model_, 5 + 7 * round, 100 + round)).ok());
    session.Restore(*saved);
    ASSERT_EQ(session.position(), 17u);
    ASSERT_TRUE(SameBits(Memory(session.state()), middle));
    ASSERT_TRUE(session.Prefill(ids.subspan(17)).ok());
    ASSERT_TRUE(SameBits(Memory(session.state()), want));
  }
}

TEST_P(Sessions, ForksDoNotSeeEachOther) {
  Session parent = NewSession(model_);
  ASSERT_TRUE(parent.Prefill(ids_).ok());
  Session a = NewSession(model_), b = NewSession(model_);
  a.Restore(parent.state());
  b.Restore(parent.state());
  const auto next_a = RandomIds(*model_, 9, 5), next_b = RandomIds(*model_, 9, 6);
  for (size_t i = 0; i < next_a.size(); ++i) {
    ASSERT_TRUE(a.Step(next_a[i]).ok());
    ASSERT_TRUE(b.Step(next_b[i]).ok());
  }
  for (const auto& [fork, next] : {std::pair{&a, &next_a}, std::pair{&b, &next_b}}) {
    Session alone = NewSession(model_);
    ASSERT_TRUE(alone.Prefill(ids_).ok());
    ASSERT_TRUE(alone.Prefill(*next).ok());
    EXPECT_TRUE(SameBits(Memory(fork->state()), Memory(alone.state())));
  }
  EXPECT_EQ(parent.position(), ids_.size());
}

TEST_P(Sessions, ProgressStopsBetweenPieces) {
  Session session = NewSession(model_, {.piece = 8});
  std::vector<size_t> seen;
  ASSERT_TRUE(session
                  .Prefill(ids_,
                           [&](size_t done) {
                             seen.push_back(done);
                             return done < 24;
                           })
                  .ok());
  EXPECT_EQ(seen, (std::vector<size_t>{8, 16, 24}));
  EXPECT_EQ(session.position(), 24u);
  // What is done is whole: the logits are those of token 24, and the rest may follow.
  Session part = NewSession(model_);
  ASSERT_TRUE(part.Prefill(std::span(ids_).first(24)).ok());
  EXPECT_TRUE(SameBits(Memory(session.state()), Memory(part.state())));
  ASSERT_TRUE(session.Prefill(std::span(ids_).subspan(24)).ok());
  Session whole = NewSession(model_);
  ASSERT_TRUE(whole.Prefill(ids_).ok());
  EXPECT_TRUE(SameBits(Memory(session.state()), Memory(whole.state())));
}

TEST_P(Sessions, ScoreGivesEveryRowAndStopsWhole) {
  Session steps = NewSession(model_, {.piece = 20, .exact = true});
  Session scored = NewSession(model_, {.piece = 20, .exact = true});
  std::vector<std::vector<float>> rows;
  for (const int32_t id : ids_) {
    ASSERT_TRUE(steps.Step(id).ok());
    rows.push_back(Copy(steps.logits()));
  }
  size_t next = 0;
  ASSERT_TRUE(scored
                  .Score(ids_,
                         [&](size_t row, std::span<const float> logits) {
                           EXPECT_EQ(row, next++);
                           // The same sums in another grouping of rows: 1e-4 is what pieces
                           // promise.
                           EXPECT_TRUE(testing::CloseToScale(logits, rows[row], 1e-4)) << row;
                           return true;
                         })
                  .ok());
  EXPECT_EQ(next, ids_.size());
  EXPECT_TRUE(SameBits(Memory(scored.state()), Memory(steps.state())));
  // Stopped inside the first piece: position, state and logits belong together all the same.
  scored.Reset();
  ASSERT_TRUE(scored.Score(ids_, [](size_t row, auto) { return row < 2; }).ok());
  Session piece = NewSession(model_, {.piece = 20, .exact = true});
  ASSERT_TRUE(piece.Prefill(std::span(ids_).first(scored.position())).ok());
  EXPECT_TRUE(SameBits(Memory(scored.state()), Memory(piece.state())));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Sessions, ::testing::ValuesIn(kSomeFixtures),
                         [](const auto& info) { return std::string(info.param); });

TEST(Session, APieceOfNoTokensIsAUsageError) {
  const auto session = Session::Create(LoadFixture("mamba_basic"), {.piece = 0});
  EXPECT_EQ(session.status().code(), core::StatusCode::kUsage);
}

TEST(Session, CallersKeepTheirFloatingPointMode) {
  Session session = NewSession(LoadFixture("mamba2_basic"));
  const auto mode = [] { return core::FloatMode() & ~core::kFlagsInMode; };
  const uint64_t before = mode();
  ASSERT_TRUE(session.Prefill(std::vector<int32_t>{1, 2, 3}).ok());
  EXPECT_EQ(mode(), before);
  ASSERT_TRUE(session.Score(std::vector<int32_t>{1, 2}, [](size_t, auto) { return true; }).ok());
  EXPECT_EQ(mode(), before);
}

size_t PeakKilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes;
  }
  return 0;
}

// Buffers are those of a piece. Kept for a whole prompt, they would take 20,000 times at least the
// 3 E + 2 E floats of one layer (Mamba-1, E = 40: 800 bytes a token, 16 MB).
TEST(Session, LongPromptsTakeNoMoreMemory) {
  const auto model = LoadFixture("mamba_basic");
  Session session = NewSession(model);
  const auto ids = RandomIds(*model, 20000, 3);
  ASSERT_TRUE(session.Prefill(std::span(ids).first(600)).ok());
  const size_t bytes = session.bytes(), peak = PeakKilobytes();
  ASSERT_GT(peak, 0u);
  ASSERT_TRUE(session.Prefill(ids).ok());
  EXPECT_EQ(session.bytes(), bytes);
  EXPECT_LE(PeakKilobytes(), peak + 4096);
  EXPECT_EQ(session.position(), 20600u);
}

}  // namespace
}  // namespace hognose::runtime
