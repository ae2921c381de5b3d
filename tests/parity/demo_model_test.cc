// The bundled model continues a text as transformers does (tools/demo_model/evaluate.py wrote the
// fixture).
#include <gtest/gtest.h>

#include <algorithm>

#include "io/file.h"
#include "io/json.h"
#include "runtime/session.h"

namespace hognose::runtime {
namespace {

std::vector<int32_t> Ids(const core::Value& fixture, std::string_view name) {
  std::vector<int32_t> ids;
  for (const auto& id : *fixture.Find(name)->AsArray()) {
    ids.push_back(static_cast<int32_t>(*id.AsInt()));
  }
  return ids;
}

TEST(DemoModel, GreedyTextEqualsTransformers) {
  const std::string path = HOGNOSE_SOURCE_DIR "/tests/fixtures/demo_greedy.json";
  const auto fixture = io::ParseJson(*io::ReadFile(path), path);
  ASSERT_TRUE(fixture.ok()) << fixture.status().message();
  const auto model = Model::Load(HOGNOSE_SOURCE_DIR "/models/demo", {.threads = 2});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto& tokenizer = *(*model)->tokenizer;
  const auto prompt = tokenizer.Encode(*fixture->Find("prompt")->AsString());
  ASSERT_EQ(*prompt, Ids(*fixture, "prompt_ids"));
  auto session = Session::Create(*model, {.exact = true});
  ASSERT_TRUE(session->Prefill(*prompt).ok());
  std::vector<int32_t> ids;
  const std::vector<int32_t> want = Ids(*fixture, "ids");
  while (ids.size() < want.size()) {
    const auto logits = session->logits();
    ids.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    ASSERT_TRUE(session->Step(ids.back()).ok());
  }
  EXPECT_EQ(ids, want);
  EXPECT_EQ(*tokenizer.Decode(ids, true), *fixture->Find("text")->AsString());
}

}  // namespace
}  // namespace hognose::runtime
