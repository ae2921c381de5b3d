#include "runtime/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "kernels/find_nonfinite/find_nonfinite.h"

namespace hognose::runtime {

std::string_view Name(StopReason reason) {
  constexpr std::string_view kNames[] = {"length", "eos", "stop", "interrupted"};
  return kNames[static_cast<size_t>(reason)];
}

std::vector<bool> DrawableTokens(const Model& model, bool ignore_eos) {
  std::vector<bool> drawable = model.sampleable;
  if (ignore_eos) {
    for (const int32_t id : model.eos_ids) drawable[static_cast<size_t>(id)] = false;
    // A model that can say nothing else may end all the same.
    if (std::find(drawable.begin(), drawable.end(), true) == drawable.end()) {
      drawable = model.sampleable;
    }
  }
  return drawable;
}

namespace {

// Finite weights can still overflow on the way; nothing drawn from that would mean anything.
core::Status CheckFinite(const Session& session) {
  const auto logits = session.logits();
  const std::lock_guard lock(session.model().compute);
  core::Exec exec = session.model().exec();
  const core::TensorView view = {logits.data(), core::DType::kF32, 1, {logits.size()}};
  const auto bad = kernels::FindNonFinite(exec, view);
  if (!bad) return {};
  return core::Status::Failed(fmt::format("{}: logit {} after token {} is not a finite number",
                                          session.model().path, *bad, session.position()));
}

}  // namespace

core::Result<Generation> Generate(Session& session, Sampler& sampler, TextStream& text,
                                  const GenerateOptions& options, TextSink sink) {
  HOGNOSE_CHECK(session.position() > 0);
  const auto start = std::chrono::steady_clock::now();
  const auto& eos = session.model().eos_ids;
  Generation result;
  while (result.ids.size() < options.max_tokens) {
    // A continuation from the saved state must draw the end of text again.
    const core::Rng::State before = sampler.rng();
    HOGNOSE_TRY(CheckFinite(session));
    const int32_t id = sampler.Sample(session.logits());
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
      sampler.RestoreRng(before);
      result.reason = StopReason::kEos;
      break;
    }
    sampler.Accept(id);
    result.ids.push_back(id);
    HOGNOSE_ASSIGN(const std::string piece, text.Push(id));
    const bool more = sink(piece);
    const bool done = text.stopped() || !more || result.ids.size() == options.max_tokens;
    if (!done || options.feed_last) HOGNOSE_TRY(session.Step(id));
    if (text.stopped()) result.reason = StopReason::kStop;
    if (text.stopped()) break;
    if (!more) result.reason = StopReason::kInterrupted;
    if (!more) break;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  result.seconds = spent.count();
  return result;
}

}  // namespace hognose::runtime
