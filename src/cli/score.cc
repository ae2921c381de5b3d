// hognose score: perplexity and logits of a given text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/command.h"
#include "cli/ids.h"
#include "io/file.h"
#include "io/npy.h"
#include "runtime/session.h"

namespace hognose::cli {
namespace {

struct ScoreOptions {
  CommonOptions common;
  std::string model, ids, text, logits;
  size_t piece = 256;
  std::string activations = "auto";
};

core::Result<std::vector<int32_t>> ReadIds(const ScoreOptions& o, const runtime::Model& model) {
  const std::string& path = o.ids.empty() ? o.text : o.ids;
  HOGNOSE_ASSIGN(const std::string content, io::ReadFile(path));
  core::Result<std::vector<int32_t>> ids = std::vector<int32_t>();
  if (!o.ids.empty()) {
    ids = ParseIds(content, path);
    if (!ids.ok()) return ids;
  } else if (!model.tokenizer) {
    return core::Status::Failed(
        fmt::format("{}/tokenizer.json: missing, --text needs a tokenizer", model.path));
  } else {
    ids = model.tokenizer->Encode(content);
    if (!ids.ok()) return core::Status::Failed(path + ": " + ids.status().message());
  }
  if (ids->empty()) return core::Status::Failed(path + ": got no tokens, want at least one");
  return ids;
}

// -log of the probability that `logits` give to `id`.
double NegativeLogLikelihood(std::span<const float> logits, int32_t id) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return best + std::log(sum) - logits[static_cast<size_t>(id)];
}

struct Sum {
  double nll = 0.0;
  size_t targets = 0;
};

// Feeds all ids; `row` sees the logits of each and may stop.
core::Status Feed(runtime::Session& session, std::span<const int32_t> ids, Sum& sum,
                  core::FunctionRef<bool(std::span<const float>)> row) {
  Progress bar("score", ids.size());
  const auto status = session.Score(ids, [&](size_t i, std::span<const float> logits) {
    if (i + 1 < ids.size() && static_cast<size_t>(ids[i + 1]) < logits.size()) {
      sum.nll += NegativeLogLikelihood(logits, ids[i + 1]);
      ++sum.targets;
    }
    bar.Update(i + 1);
    return row(logits) && !Interrupted();
  });
  HOGNOSE_TRY(status);
  if (Interrupted()) return core::Status::Failed("score: interrupted");
  return {};
}

core::Result<int> Score(const ScoreOptions& o) {
  CatchInterrupt();
  if (o.ids.empty() == o.text.empty()) {
    return core::Status::Usage("--ids, --text: want exactly one of them");
  }
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, !o.text.empty()));
  HOGNOSE_ASSIGN(const auto ids, ReadIds(o, *model));
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(
                                   model, {.piece = o.piece, .exact = o.activations == "f32"}));
  Sum sum;
  core::Status status;
  if (o.logits.empty()) {
    status = Feed(session, ids, sum, [](std::span<const float>) { return true; });
  } else {
    status = io::WriteNpy(o.logits, ids.size(), model->lm.logits_size(),
                          [&](io::NpyRowSink sink) { return Feed(session, ids, sum, sink); });
  }
  if (Interrupted()) return kExitInterrupted;
  if (!status.ok()) {
    const std::string& path = o.ids.empty() ? o.text : o.ids;
    const bool about_ids = status.message().starts_with("token ");
    return about_ids ? core::Status::Failed(path + ": " + status.message()) : status;
  }
  const double nll = sum.targets == 0 ? 0.0 : sum.nll / static_cast<double>(sum.targets);
  const core::Value none;  // one token predicts nothing
  PrintJson(core::Value::Object{{"tokens", ids.size()},
                                {"nll", sum.targets == 0 ? none : core::Value(nll)},
                                {"perplexity", sum.targets == 0 ? none : core::Value(std::exp(nll))}});
  return kExitDone;
}

}  // namespace

Runner AddScore(CLI::App& app) {
  auto o = std::make_shared<ScoreOptions>();
  AddModel(app, o->model);
  AddCommon(app, o->common);
  app.add_option("--ids", o->ids, "File of decimal ids, separated by whitespace or commas");
  app.add_option("--text", o->text, "File of UTF-8 text");
  app.add_option("--logits", o->logits, "Write float32 NPY [L, V], row i after token i");
  app.add_option("--piece", o->piece, "Tokens fed at a time; 1 is step by step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--activations", o->activations,
                 "f32: every product in f32; auto: activations may be rounded to bf16")
      ->check(CLI::IsMember({"auto", "f32"}))
      ->capture_default_str();
  return [o] { return Score(*o); };
}

}  // namespace hognose::cli
