// The public header alone: what a program outside sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "hognose/hognose.hpp"

namespace {

const std::string kDemo = HOGNOSE_SOURCE_DIR "/models/demo";

std::vector<float> Logits(const hognose::Session& session) {
  return {session.logits().begin(), session.logits().end()};
}

TEST(Api, PromptBranchSaveAndBatch) {
  auto model = hognose::Model::Load(kDemo, {.threads = 2});
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->info().architecture, "mamba2");
  EXPECT_EQ(model->info().vocabulary, 2048u);
  auto ids = model->Encode("It is a truth");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*model->Decode(*ids), "It is a truth");
  auto session = hognose::Session::Create(*model);
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(session->logits().empty());
  ASSERT_TRUE(session->Prefill(*ids).ok());
  EXPECT_EQ(session->position(), ids->size());
  const auto want = Logits(*session);

  // A branch and back.
  auto state = session->Snapshot();
  ASSERT_TRUE(state.ok());
  ASSERT_TRUE(session->Step(5).ok());
  EXPECT_NE(Logits(*session), want);
  ASSERT_TRUE(session->Restore(*state).ok());
  EXPECT_EQ(Logits(*session), want);

  // Through a file into another session.
  const std::string path =
      (std::filesystem::temp_directory_path() / "hognose-api-test.state").string();
  ASSERT_TRUE(session->Save(path).ok());
  auto other = hognose::Session::Create(*model);
  ASSERT_TRUE(other->Load(path).ok());
  std::filesystem::remove(path);
  EXPECT_EQ(Logits(*other), want);
  EXPECT_EQ(other->position(), session->position());

  // Two sessions in one pass.
  auto batch = hognose::Batch::Create(*model, 8);
  ASSERT_TRUE(batch.ok());
  const std::vector<int32_t> one = {7}, two = {9, 11};
  const std::vector<hognose::Batch::Input> inputs = {{&*session, one}, {&*other, two}};
  ASSERT_TRUE(batch->Feed(inputs).ok());
  auto alone = hognose::Session::Create(*model);
  ASSERT_TRUE(alone->Restore(*state).ok());
  ASSERT_TRUE(alone->Prefill(two).ok());
  EXPECT_EQ(Logits(*other), Logits(*alone));
}

TEST(Api, ErrorsAreValues) {
  EXPECT_NE(hognose::Model::Load("/nowhere").status().message().find("/nowhere"),
            std::string::npos);
  auto model = hognose::Model::Load(kDemo);
  auto session = hognose::Session::Create(*model, {.piece = 0});
  EXPECT_FALSE(session.ok());
  session = hognose::Session::Create(*model);
  EXPECT_FALSE(session->Step(-1).ok());
  EXPECT_FALSE(session->Step(1 << 20).ok());
  EXPECT_FALSE(session->Load("/nowhere").ok());
  auto batch = hognose::Batch::Create(*model, 1);
  const std::vector<hognose::Batch::Input> none = {{nullptr, {}}};
  EXPECT_FALSE(batch->Feed(none).ok());
}

}  // namespace
