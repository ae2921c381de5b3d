// Greedy generation with a branch: generate MODEL [PROMPT]
// Feeds a prompt, takes the likeliest token 20 times, goes back to the state behind the prompt and
// shows that the same text comes again.
#include <algorithm>
#include <cstdio>
#include <string>

#include "hognose/hognose.hpp"

namespace {

int Fail(const hognose::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

hognose::Result<std::string> Greedy(const hognose::Model& model, hognose::Session& session,
                                    size_t count) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) {
    const auto logits = session.logits().first(model.info().vocabulary);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ids.push_back(static_cast<int32_t>(best));
    if (auto status = session.Step(ids.back()); !status.ok()) return status;
  }
  return model.Decode(ids);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return Fail(hognose::Status("usage: generate MODEL [PROMPT]"));
  const std::string prompt = argc > 2 ? argv[2] : "It is a truth universally acknowledged";
  auto model = hognose::Model::Load(argv[1]);
  if (!model.ok()) return Fail(model.status());
  auto ids = model->Encode(prompt);
  if (!ids.ok()) return Fail(ids.status());
  auto session = hognose::Session::Create(*model);
  if (!session.ok()) return Fail(session.status());
  if (auto status = session->Prefill(*ids); !status.ok()) return Fail(status);

  auto behind_prompt = session->Snapshot();
  if (!behind_prompt.ok()) return Fail(behind_prompt.status());
  auto first = Greedy(*model, *session, 20);
  if (!first.ok()) return Fail(first.status());
  if (auto status = session->Restore(*behind_prompt); !status.ok()) return Fail(status);
  auto second = Greedy(*model, *session, 20);
  if (!second.ok()) return Fail(second.status());

  std::printf("%s%s\n", prompt.c_str(), first->c_str());
  return *first == *second ? 0 : Fail(hognose::Status("the branch gave another text"));
}
