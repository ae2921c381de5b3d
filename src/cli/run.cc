// hognose run: continues a text.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>

#include "cli/command.h"
#include "cli/options.h"
#include "io/file.h"
#include "runtime/generate.h"
#include "runtime/state_file.h"

namespace hognose::cli {
namespace {

struct RunOptions {
  CommonOptions common;
  std::string model;
  std::optional<std::string> prompt;
  uint64_t tokens = 128;
  runtime::SamplerOptions sampler;
  std::optional<uint64_t> seed;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  bool echo = false;
  std::string quantize, adapter;
  std::string state_in;
  std::string state_out;
};

void AddOptions(CLI::App& app, RunOptions& o) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  AddModel(app, o.model);
  AddCommon(app, o.common);
  AddText(app, "-p,--prompt", &o.prompt, "The text to continue; - reads it from standard input");
  AddInteger(app, "-n,--tokens", &o.tokens, 0, uint64_t{1} << 40, "Tokens to generate at most");
  AddReal(app, "--temperature", &o.sampler.temperature, 0.0, 100.0, "0 takes the likeliest token");
  AddInteger(app, "--top-k", &o.sampler.top_k, 0, uint64_t{1} << 31,
             "Draw from the K likeliest; 0 from all");
  AddReal(app, "--top-p", &o.sampler.top_p, 0.0, 1.0,
          "Draw from the likeliest that have this share");
  AddReal(app, "--min-p", &o.sampler.min_p, 0.0, 1.0, "Not below this share of the likeliest");
  AddReal(app, "--repeat-penalty", &o.sampler.repeat_penalty, 0.01, 100.0,
          "Above 1 avoids recent tokens");
  AddInteger(app, "--seed", &o.seed, 0, kMost,
             "Same seed, same text (default: a new one each run)");
  AddTexts(app, "--stop", &o.stops, "End before this text; may be given several times");
  AddFlag(app, "--ignore-eos", &o.ignore_eos, "Never draw the end of text");
  AddPath(app, "--adapter", &o.adapter, "Folder of a LoRA adapter to add");
  AddChoice(app, "--quantize", &o.quantize, {"int8", "int4"}, "Re-encode the weights in memory");
  AddFlag(app, "--echo", &o.echo, "Print the prompt too");
  AddPath(app, "--state-in", &o.state_in, "Continue from this state file");
  AddPath(app, "--state-out", &o.state_out, "Write the state of all printed text to this file");
}

// How messages name the prompt.
std::string PromptName(const RunOptions& o) {
  return o.prompt && *o.prompt == "-" ? "standard input" : "-p/--prompt";
}

core::Result<std::string> ReadPrompt(const RunOptions& o) {
  if (!o.prompt && o.state_in.empty()) {
    return core::Status::Usage(
        "-p/--prompt: got none, want a text to continue (- for standard input)");
  }
  if (o.prompt && *o.prompt == "-") return ReadStandardInput();
  return o.prompt.value_or("");
}

// Ids of the prompt: with the tokenizer's special tokens at the start of a text, without them in a
// continuation.
core::Result<std::vector<int32_t>> EncodePrompt(const RunOptions& o, const std::string& text,
                                                const io::Tokenizer& tokenizer) {
  const bool continues = !o.state_in.empty();
  auto ids = tokenizer.Encode(text, !continues);
  if (!ids.ok()) return core::Status::Failed(PromptName(o) + ": " + ids.status().message());
  if (!ids->empty() || continues) return ids;
  const std::string message = fmt::format("{}: got {}, want some to continue", PromptName(o),
                                          text.empty() ? "no text" : "a text of no tokens");
  if (*o.prompt == "-") return core::Status::Failed(message);
  return core::Status::Usage(message);
}

struct Timed {
  size_t tokens = 0;
  double seconds = 0.0;
  double rate() const { return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }
};

// Feeds the prompt, or after Ctrl-C the pieces of it that were begun.
core::Result<Timed> FeedPrompt(runtime::Session& session, std::span<const int32_t> ids) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t before = session.position();
  {
    Progress bar("prompt", ids.size());
    HOGNOSE_TRY(session.Prefill(ids, [&](size_t done) {
      bar.Update(done);
      return !Interrupted();
    }));
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return Timed{session.position() - before, spent.count()};
}

uint64_t NewSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// True if `rng` began with `seed`: each token of the text drew from it once at most.
bool BeganWith(uint64_t seed, const core::Rng::State& rng, uint64_t tokens) {
  core::Rng replay(seed);
  for (uint64_t i = 0; i < tokens && replay.state() != rng; ++i) replay.Next();
  return replay.state() == rng;
}

void Report(const RunOptions& o, const Timed& prompt, const runtime::Generation& generation,
            const std::string& text) {
  const Timed generated{generation.ids.size(), generation.seconds};
  if (o.common.json) {
    core::Value::Array ids;
    for (const int32_t id : generation.ids) ids.emplace_back(id);
    PrintJson(core::Value::Object{{"text", text},
                                  {"prompt_tokens", prompt.tokens},
                                  {"tokens", generated.tokens},
                                  {"ids", std::move(ids)},
                                  {"stop_reason", Name(generation.reason)},
                                  {"prompt_tokens_per_second", prompt.rate()},
                                  {"tokens_per_second", generated.rate()}});
  }
  if (!OutputOpen()) return;
  Note(fmt::format("prompt: {} tokens, {:.1f} tokens/s; generated: {} tokens, {:.1f} tokens/s",
                   prompt.tokens, prompt.rate(), generated.tokens, generated.rate()));
}

// Sets session, sampler and text stream to what the state file remembers.
core::Status Continue(const RunOptions& o, runtime::Session& session, runtime::Sampler& sampler,
                      runtime::TextStream& stream) {
  if (o.state_in.empty()) return {};
  HOGNOSE_ASSIGN(const runtime::SavedState saved, runtime::ReadState(o.state_in, session));
  if (saved.session.position == 0) {
    return core::Status::Failed(
        fmt::format("{}: position: got 0, want a started text", o.state_in));
  }
  if (const auto status = stream.Restore(saved.text); !status.ok()) {
    return core::Status::Failed(fmt::format("{}: text: {}", o.state_in, status.message()));
  }
  session.Restore(saved.session);
  runtime::Sampler::State state = saved.sampler;
  // The same seed again asks for the text of one run, another seed for another text.
  if (o.seed && !BeganWith(*o.seed, state.rng, saved.session.position)) {
    state.rng = core::Rng(*o.seed).state();
  }
  sampler.Restore(state);
  return {};
}

core::Result<int> Generate(const RunOptions& o, const std::shared_ptr<const runtime::Model>& model,
                           const std::string& prompt) {
  HOGNOSE_ASSIGN(const auto ids, EncodePrompt(o, prompt, *model->tokenizer));
  // Buffers no larger than this prompt needs: to clear those of a whole piece takes milliseconds.
  const size_t piece = std::clamp(ids.size(), size_t{1}, runtime::SessionOptions().piece);
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {.piece = piece}));
  const std::vector<bool> drawable = runtime::DrawableTokens(*model, o.ignore_eos);
  runtime::Sampler sampler(o.sampler, drawable, o.seed ? *o.seed : NewSeed());
  runtime::TextStream stream(*model->tokenizer, o.stops);
  HOGNOSE_TRY(Continue(o, session, sampler, stream));
  std::string text;
  const auto emit = [&](std::string_view piece) {
    if (o.common.json) text += piece;
    return (o.common.json || Print(piece)) && !Interrupted();
  };
  HOGNOSE_ASSIGN(const Timed fed, FeedPrompt(session, ids));
  for (const int32_t id : std::span(ids).first(fed.tokens)) sampler.Accept(id);
  runtime::Generation generation;
  generation.reason = runtime::StopReason::kInterrupted;
  if ((!o.echo || emit(prompt)) && !Interrupted()) {
    const runtime::GenerateOptions options = {
        .max_tokens = o.tokens, .ignore_eos = o.ignore_eos, .feed_last = !o.state_out.empty()};
    HOGNOSE_ASSIGN(generation, runtime::Generate(session, sampler, stream, options, emit));
  }
  if (o.state_out.empty()) {
    HOGNOSE_ASSIGN(const std::string rest, stream.Finish());
    emit(rest);
  } else {
    HOGNOSE_TRY(runtime::WriteState(o.state_out, session, sampler.state(), stream.Save()));
  }
  if (!o.common.json && isatty(STDOUT_FILENO) == 1) Print("\n");
  Report(o, fed, generation, text);
  return Interrupted() ? kExitInterrupted : kExitDone;
}

core::Result<int> Run(const RunOptions& o) {
  CatchInterrupt();
  const auto prompt = ReadPrompt(o);
  if (Interrupted()) return kExitInterrupted;
  HOGNOSE_TRY(prompt.status());
  if (!o.state_out.empty()) HOGNOSE_TRY(CheckWritable(o.state_out));
  HOGNOSE_ASSIGN(const auto model,
                 LoadModel(o.model, o.common, /*tokenizer=*/true, o.quantize, o.adapter));
  if (!model->tokenizer) {
    return core::Status::Failed(
        fmt::format("{}/tokenizer.json: got no such file, run needs a tokenizer", model->path));
  }
  return Generate(o, model, *prompt);
}

}  // namespace

Runner AddRun(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  AddOptions(app, *options);
  return [options] { return Run(*options); };
}

}  // namespace hognose::cli
