#include "runtime/batch.h"

#include "runtime/test_util.h"

namespace hognose::runtime {
namespace {

using testing::SameBits;

Batch NewBatch(const SharedModel& model, size_t rows, bool exact = false) {
  auto batch = Batch::Create(model, rows, exact);
  EXPECT_TRUE(batch.ok()) << batch.status().message();
  return std::move(*batch);
}

// Everything that a session remembers after these ids, alone.
std::vector<float> Alone(const SharedModel& model, std::span<const int32_t> ids, bool exact) {
  Session session = NewSession(model, {.exact = exact});
  EXPECT_TRUE(session.Prefill(ids).ok());
  return Memory(session.state());
}

// Prompts of different lengths, then steps: at each, some sessions take part and some don't.
// Whatever the company and the rows of a pass, every session has the bits of its own sequence.
TEST(Batch, RowsDoNotSeeEachOtherBitForBit) {
  for (const std::string_view name : kSomeFixtures) {
    const auto model = LoadFixture(name);
    for (const size_t rows : {1, 3, 5, 64}) {
      for (const bool exact : {true, false}) {
        constexpr size_t kSessions = 5;
        std::vector<Session> sessions;
        std::vector<std::vector<int32_t>> ids;
        for (size_t i = 0; i < kSessions; ++i) {
          sessions.push_back(NewSession(model));
          ids.push_back(RandomIds(*model, 30, i + 1));
        }
        Batch batch = NewBatch(model, rows, exact);
        core::Rng rng(rows);
        std::vector<size_t> fed(kSessions, 0);
        for (int call = 0; call < 12; ++call) {
          std::vector<Batch::Input> inputs;
          for (size_t i = 0; i < kSessions; ++i) {
            const size_t left = ids[i].size() - fed[i];
            const size_t count = std::min<size_t>(call == 0 ? 2 * i + 1 : rng.Below(3), left);
            if (rng.Below(4) == 0) continue;  // leaves, and joins again later
            inputs.push_back({&sessions[i], std::span(ids[i]).subspan(fed[i], count)});
            fed[i] += count;
          }
          ASSERT_TRUE(batch.Feed(inputs).ok());
        }
        for (size_t i = 0; i < kSessions; ++i) {
          ASSERT_EQ(sessions[i].position(), fed[i]);
          if (fed[i] == 0) continue;
          ASSERT_TRUE(SameBits(Memory(sessions[i].state()),
                               Alone(model, std::span(ids[i]).first(fed[i]), exact)))
              << name << " rows " << rows << " session " << i;
        }
      }
    }
  }
}

TEST(Batch, ErrorsAreFoundBeforeAnythingIsFed) {
  const auto model = LoadFixture("mamba2_basic"), other = LoadFixture("mamba_basic");
  Session a = NewSession(model), b = NewSession(model), c = NewSession(other);
  const std::vector<int32_t> good = {1, 2, 3}, bad = {1, 1 << 20};
  Batch batch = NewBatch(model, 8);
  const auto message = [&](std::vector<Batch::Input> inputs) {
    return batch.Feed(inputs).message();
  };
  EXPECT_NE(message({{&a, good}, {&c, good}}).find("input 1: got a session of another model"),
            std::string::npos);
  EXPECT_NE(message({{&a, good}, {&b, good}, {&a, good}}).find("input 2: got a session twice"),
            std::string::npos);
  EXPECT_NE(message({{&a, good}, {&b, bad}}).find("input 1: token 1: got id 1048576"),
            std::string::npos);
  EXPECT_EQ(a.position(), 0u);
  EXPECT_EQ(b.position(), 0u);
  EXPECT_FALSE(Batch::Create(model, 0, false).ok());
  EXPECT_TRUE(batch.Feed({}).ok());
  const std::vector<Batch::Input> none = {{&a, {}}};
  EXPECT_TRUE(batch.Feed(none).ok());
  EXPECT_EQ(a.position(), 0u);
}

}  // namespace
}  // namespace hognose::runtime
