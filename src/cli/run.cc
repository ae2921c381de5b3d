// hognose run: continues a text.
#include <fmt/format.h>

#include <chrono>
#include <random>

#include "cli/command.h"
#include "io/file.h"
#include "runtime/generate.h"
#include "runtime/state_file.h"

namespace hognose::cli {
namespace {

struct RunOptions {
  CommonOptions common;
  std::string model;
  std::optional<std::string> prompt;
  size_t tokens = 128;
  runtime::SamplerOptions sampler;
  std::optional<uint64_t> seed;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  bool echo = false;
  std::string state_in;
  std::string state_out;
};

void AddOptions(CLI::App& app, RunOptions& o) {
  AddModel(app, o.model);
  AddCommon(app, o.common);
  app.add_option("-p,--prompt", o.prompt, "The text to continue; - reads it from standard input");
  app.add_option("-n,--tokens", o.tokens, "Tokens to generate at most")
      ->check(CLI::Range(size_t{0}, size_t{1} << 40))
      ->capture_default_str();
  app.add_option("--temperature", o.sampler.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", o.sampler.top_k, "Draw from the K likeliest; 0 from all")
      ->check(CLI::Range(size_t{0}, size_t{1} << 31))
      ->capture_default_str();
  app.add_option("--top-p", o.sampler.top_p, "Draw from the likeliest that have this share")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", o.sampler.min_p, "Not below this share of the likeliest")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repeat-penalty", o.sampler.repeat_penalty, "Above 1 avoids recent tokens")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "Same seed, same text (default: a new one each run)");
  app.add_option("--stop", o.stops, "End before this text; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", o.ignore_eos, "Never draw the end of text");
  app.add_flag("--echo", o.echo, "Print the prompt too");
  app.add_option("--state-in", o.state_in, "Continue from this state file");
  app.add_option("--state-out", o.state_out, "Write the state of all printed text to this file");
}

// Ids of the prompt: with the tokenizer's special tokens at the start of a text, without them in a
// continuation.
core::Result<std::vector<int32_t>> EncodePrompt(const RunOptions& o, const std::string& text,
                                                const io::Tokenizer& tokenizer) {
  const bool continues = !o.state_in.empty();
  if (text.empty() && continues) return std::vector<int32_t>();
  if (text.empty()) return core::Status::Usage("--prompt: got no text, want some");
  auto ids = tokenizer.Encode(text, !continues);
  if (!ids.ok()) return core::Status::Failed("--prompt: " + ids.status().message());
  if (ids->empty() && !continues) return core::Status::Usage("--prompt: the text has no tokens");
  return ids;
}

core::Result<std::string> ReadPrompt(const RunOptions& o) {
  if (!o.prompt) {
    if (!o.state_in.empty()) return std::string();
    return core::Status::Usage("--prompt: missing, want a text to continue (- for standard input)");
  }
  if (*o.prompt == "-") return io::ReadFile("/dev/stdin");
  return *o.prompt;
}

struct Timed {
  size_t tokens = 0;
  double seconds = 0.0;
  double rate() const { return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }
};

core::Result<Timed> FeedPrompt(runtime::Session& session, std::span<const int32_t> ids) {
  const auto start = std::chrono::steady_clock::now();
  {
    Progress bar("prompt", ids.size());
    HOGNOSE_TRY(session.Prefill(ids, [&](size_t done) {
      bar.Update(done);
      return !Interrupted();
    }));
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return Timed{ids.size(), spent.count()};
}

uint64_t Seed(const RunOptions& o) {
  if (o.seed) return *o.seed;
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
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
  Note(fmt::format("prompt: {} tokens, {:.1f} tokens/s; generated: {} tokens, {:.1f} tokens/s",
                   prompt.tokens, prompt.rate(), generated.tokens, generated.rate()));
}

// Sets session, sampler and text stream to what the state file remembers.
core::Status Continue(const RunOptions& o, runtime::Session& session, runtime::Sampler& sampler,
                      runtime::TextStream& stream) {
  if (o.state_in.empty()) return {};
  HOGNOSE_ASSIGN(const runtime::SavedState saved, runtime::ReadState(o.state_in, session));
  if (saved.session.position == 0) {
    return core::Status::Failed(fmt::format("{}: position: got 0, want a started text", o.state_in));
  }
  if (const auto status = stream.Restore(saved.text); !status.ok()) {
    return core::Status::Failed(fmt::format("{}: text: {}", o.state_in, status.message()));
  }
  session.Restore(saved.session);
  runtime::Sampler::State state = saved.sampler;
  if (o.seed) state.rng = core::Rng(*o.seed).state();
  sampler.Restore(state);
  return {};
}

core::Result<int> Generate(const RunOptions& o, const std::shared_ptr<const runtime::Model>& model,
                           const std::string& prompt) {
  HOGNOSE_ASSIGN(const auto ids, EncodePrompt(o, prompt, *model->tokenizer));
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {}));
  const std::vector<bool> drawable = runtime::DrawableTokens(*model, o.ignore_eos);
  runtime::Sampler sampler(o.sampler, drawable, Seed(o));
  runtime::TextStream stream(*model->tokenizer, o.stops);
  HOGNOSE_TRY(Continue(o, session, sampler, stream));
  std::string text;
  const auto emit = [&](std::string_view piece) {
    if (o.common.json) text += piece;
    return (o.common.json || Print(piece)) && !Interrupted();
  };
  HOGNOSE_ASSIGN(const Timed fed, FeedPrompt(session, ids));
  for (const int32_t id : ids) sampler.Accept(id);
  runtime::Generation generation;
  generation.reason = runtime::StopReason::kInterrupted;
  if ((!o.echo || emit(prompt)) && !Interrupted()) {
    const runtime::GenerateOptions options = {.max_tokens = o.tokens,
                                              .ignore_eos = o.ignore_eos,
                                              .feed_last = !o.state_out.empty()};
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
  HOGNOSE_ASSIGN(const std::string prompt, ReadPrompt(o));
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, /*tokenizer=*/true));
  if (!model->tokenizer) {
    return core::Status::Failed(
        fmt::format("{}/tokenizer.json: missing, run needs a tokenizer", model->path));
  }
  return Generate(o, model, prompt);
}

}  // namespace

Runner AddRun(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  AddOptions(app, *options);
  return [options] { return Run(*options); };
}

}  // namespace hognose::cli
