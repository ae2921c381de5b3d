// A step allocates nothing, neither in the caller's thread nor in the pool's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/generate.h"
#include "runtime/test_util.h"
#include "tests/support/alloc_guard.h"

namespace hognose::runtime {
namespace {

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const auto& name : AllFixtures()) folders.push_back(kFixtures + name);
  folders.push_back(kDemo);
  return folders;
}

// Every thread of the pool inside one round at the same time: what a thread takes when it starts
// (under a sanitizer, it does) is behind us then.
void StartThreads(const Model& model) {
  std::atomic<size_t> inside{0};
  const size_t threads = model.pool->threads();
  model.pool->Run(threads, [&](size_t) {
    inside.fetch_add(1);
    while (inside.load() < threads) std::this_thread::yield();
  });
}

class Allocation : public ::testing::TestWithParam<std::string> {};

TEST_P(Allocation, AStepAndAPromptAllocateNothing) {
  const auto model = LoadModel(GetParam());
  StartThreads(*model);
  for (const bool exact : {false, true}) {
    Session session = NewSession(model, {.piece = 8, .exact = exact});
    const auto ids = RandomIds(*model, 20, 1);
    ASSERT_TRUE(session.Prefill(ids).ok());  // kernels choose their target once
    const testing::AllocGuard guard;
    bool ok = true;
    for (const int32_t id : ids) ok &= session.Step(id).ok();
    ok &= session.Prefill(ids).ok();
    const size_t count = guard.count();
    EXPECT_TRUE(ok);
    EXPECT_EQ(count, 0u);
  }
}

// What Generate does for a token, without the text: draw, tell the sampler, feed.
TEST_P(Allocation, ASampledTokenAllocatesNothing) {
  const auto model = LoadModel(GetParam());
  StartThreads(*model);
  Session session = NewSession(model);
  Session other = NewSession(model);
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.temperature = 0.0},
        SamplerOptions{.top_k = 0, .top_p = 1.0, .min_p = 0.0, .repeat_penalty = 1.1}}) {
    Sampler sampler(options, model->sampleable, 1);
    ASSERT_TRUE(session.Prefill(RandomIds(*model, 3, 1)).ok());
    const testing::AllocGuard guard;
    bool ok = true;
    for (int i = 0; i < 30; ++i) {
      const int32_t id = sampler.Sample(session.logits());
      sampler.Accept(id);
      ok &= session.Step(id).ok();
    }
    other.Restore(session.state());
    session.Reset();
    const size_t count = guard.count();
    EXPECT_TRUE(ok);
    EXPECT_EQ(count, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Allocation, ::testing::ValuesIn(Folders()), [](const auto& info) {
  return std::filesystem::path(info.param).filename().string();
});

// With text: what a token adds are the doublings of the list of ids (3 from 10 to 60) and a rare
// piece that is longer than a string holds in itself (15 bytes): far from one allocation a token.
TEST(GenerateAllocation, ATokenTakesNoMoreThanItsText) {
  const auto model = LoadModel(kDemo);
  StartThreads(*model);
  const auto count_of = [&](size_t tokens) {
    Session session = NewSession(model);
    Sampler sampler({}, model->sampleable, 1);
    TextStream text(*model->tokenizer, {});
    EXPECT_TRUE(session.Prefill(std::vector<int32_t>{5, 6, 7}).ok());
    const testing::AllocGuard guard;
    const auto made = Generate(session, sampler, text, {.max_tokens = tokens, .ignore_eos = true},
                               [](std::string_view) { return true; });
    const size_t count = guard.count();
    EXPECT_TRUE(made.ok());
    return std::pair{count, (*made).ids.size()};
  };
  const auto [few, few_ids] = count_of(10);
  const auto [many, many_ids] = count_of(60);
  ASSERT_GT(many_ids, few_ids);
  EXPECT_LE(10 * (many - few), many_ids - few_ids);
}

}  // namespace
}  // namespace hognose::runtime
