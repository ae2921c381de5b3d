// hognose score: perplexity and logits of a given text.
#include <fmt/format.h>

#include <cmath>

#include "cli/command.h"
#include "cli/options.h"
#include "io/file.h"
#include "io/ids.h"
#include "io/npy.h"
#include "runtime/perplexity.h"
#include "runtime/session.h"

namespace hognose::cli {
namespace {

struct ScoreOptions {
  CommonOptions common;
  std::string model, ids, text, logits, adapter;
  uint64_t piece = 256;
  std::string activations = "auto";
};

core::Result<std::vector<int32_t>> ReadIds(const ScoreOptions& o, const std::string& path,
                                           const runtime::Model& model) {
  if (o.ids.empty() && !model.tokenizer) {
    return core::Status::Failed(
        fmt::format("{}/tokenizer.json: got no such file, --text needs a tokenizer", model.path));
  }
  HOGNOSE_ASSIGN(const std::string content, ReadInput(path));
  const std::string where = InputName(path);
  if (!o.ids.empty()) {
    HOGNOSE_ASSIGN(auto ids, io::ParseIds(content, where));
    if (!ids.empty()) return ids;
  } else {
    auto ids = model.tokenizer->Encode(content);
    if (!ids.ok()) return core::Status::Failed(where + ": " + ids.status().message());
    if (!ids->empty()) return ids;
  }
  return core::Status::Failed(where + ": got no tokens, want at least one");
}

// Feeds all ids; `row` sees the logits of each and may stop.
core::Status Feed(runtime::Session& session, std::span<const int32_t> ids, runtime::NllSum& sum,
                  core::FunctionRef<bool(std::span<const float>)> row) {
  Progress bar("score", ids.size());
  const auto status = session.Score(ids, [&](size_t i, std::span<const float> logits) {
    if (i + 1 < ids.size()) sum.Add(logits, ids[i + 1]);
    bar.Update(i + 1);
    return row(logits) && !Interrupted();
  });
  HOGNOSE_TRY(status);
  if (Interrupted()) return core::Status::Failed("score: interrupted");
  return {};
}

core::Status FeedInto(const std::string& logits, runtime::Session& session,
                      std::span<const int32_t> ids, runtime::NllSum& sum) {
  if (logits.empty()) {
    return Feed(session, ids, sum, [](std::span<const float>) { return true; });
  }
  return io::WriteNpy(logits, ids.size(), session.model().lm.logits_size(),
                      [&](io::NpyRowSink sink) { return Feed(session, ids, sum, sink); });
}

void Report(size_t tokens, const runtime::NllSum& sum) {
  core::Value nll, perplexity;  // one token predicts nothing
  if (sum.targets() > 0) {
    const double mean = sum.mean();
    nll = mean;
    // JSON has no infinity.
    if (std::isfinite(std::exp(mean))) perplexity = std::exp(mean);
  }
  PrintJson(core::Value::Object{{"tokens", tokens}, {"nll", nll}, {"perplexity", perplexity}});
}

core::Result<int> Score(const ScoreOptions& o) {
  CatchInterrupt();
  if (o.ids.empty() == o.text.empty()) {
    return core::Status::Usage(fmt::format("--ids, --text: got {}, want exactly one of them",
                                           o.ids.empty() ? "none" : "both"));
  }
  const std::string& path = o.ids.empty() ? o.text : o.ids;
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, !o.text.empty(), "", o.adapter));
  const auto ids = ReadIds(o, path, *model);
  if (Interrupted()) return kExitInterrupted;
  HOGNOSE_TRY(ids.status());
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(
                                   model, {.piece = o.piece, .exact = o.activations == "f32"}));
  runtime::NllSum sum;
  const core::Status status = FeedInto(o.logits, session, *ids, sum);
  if (Interrupted()) return kExitInterrupted;
  if (status.message().starts_with("token ")) {
    return core::Status::Failed(InputName(path) + ": " + status.message());
  }
  HOGNOSE_TRY(status);
  Report(ids->size(), sum);
  return kExitDone;
}

}  // namespace

Runner AddScore(CLI::App& app) {
  auto o = std::make_shared<ScoreOptions>();
  AddModel(app, o->model);
  AddCommon(app, o->common);
  AddPath(app, "--ids", &o->ids,
          "File of decimal ids, separated by whitespace or commas; - is standard input");
  AddPath(app, "--text", &o->text, "File of UTF-8 text; - is standard input");
  AddPath(app, "--adapter", &o->adapter, "Folder of a LoRA adapter to add");
  AddPath(app, "--logits", &o->logits, "Write float32 NPY [L, V], row i after token i");
  AddInteger(app, "--piece", &o->piece, 1, 4096, "Tokens fed at a time; 1 is step by step");
  AddChoice(app, "--activations", &o->activations, {"auto", "f32"},
            "f32: every product in f32; auto: activations may be rounded to bf16");
  return [o] { return Score(*o); };
}

}  // namespace hognose::cli
