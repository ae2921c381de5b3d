// hognose inspect: what a model folder or a state file holds.
#include <fmt/format.h>

#include <filesystem>

#include "cli/command.h"
#include "cli/options.h"
#include "io/file.h"
#include "io/json.h"
#include "models/sequence_config.h"
#include "runtime/predictor.h"
#include "runtime/session.h"
#include "runtime/state_file.h"

namespace hognose::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  std::string path;
};

core::Value Shape(const core::TensorView& tensor) {
  core::Value::Array shape;
  for (const size_t n : tensor.dims()) shape.emplace_back(n);
  return shape;
}

core::Value Tensors(const core::TensorMap& tensors) {
  core::Value::Array rows;
  for (const auto& [name, tensor] : tensors) {
    rows.push_back(core::Value::Object{
        {"name", name}, {"dtype", core::Name(tensor.dtype)}, {"shape", Shape(tensor)}});
  }
  return rows;
}

// "6291456 (6.00 MiB)", "3149824 (3.15 M)": what a person can't read at a glance is said again.
std::string WithUnit(const std::string& name, int64_t number) {
  const bool bytes = name.ends_with("_bytes");
  if (!bytes && name != "parameters") return fmt::format("{}", number);
  const double step = bytes ? 1024.0 : 1000.0;
  const std::string_view units = bytes ? "KMGT" : "KMBT";
  double scaled = static_cast<double>(number);
  size_t unit = 0;
  for (; scaled >= step && unit < units.size(); ++unit) scaled /= step;
  if (unit == 0) return fmt::format("{}", number);
  return fmt::format("{} ({:.2f} {}{})", number, scaled, units[unit - 1], bytes ? "iB" : "");
}

// A table for people from the same object that --json prints.
void PrintTable(const core::Value::Object& facts) {
  std::string text;
  const auto line = [&](const std::string& name, std::string_view value) {
    text += fmt::format("{:<22}{}\n", name, value);
  };
  for (const auto& [name, value] : facts) {
    if (const auto* word = value.AsString()) line(name, *word);
    if (const auto* number = value.AsInt()) line(name, WithUnit(name, *number));
    if (const auto* yes = value.AsBool()) line(name, *yes ? "yes" : "no");
  }
  Print(text);
}

void PrintTensors(const core::TensorMap& tensors) {
  size_t width = 0;
  for (const auto& [name, tensor] : tensors) width = std::max(width, name.size());
  std::string text = "tensors\n";
  for (const auto& [name, tensor] : tensors) {
    text += fmt::format("  {:<{}}  {}\n", name, width, core::ToString(tensor));
  }
  Print(text);
}

int Show(const InspectOptions& o, core::Value::Object facts, const core::TensorMap& tensors) {
  if (o.common.json) {
    facts.emplace_back("tensors", Tensors(tensors));
    PrintJson(facts);
  } else {
    PrintTable(facts);
    PrintTensors(tensors);
  }
  return kExitDone;
}

core::Result<int> InspectModel(const InspectOptions& o, const std::string& path) {
  HOGNOSE_ASSIGN(const auto model, LoadModel(path, o.common, /*tokenizer=*/true));
  HOGNOSE_ASSIGN(const auto session, runtime::Session::Create(model, {}));
  const auto& lm = model->lm;
  const size_t vocab_tokens = model->tokenizer ? model->tokenizer->vocab_size() : 0;
  core::Value::Object facts = {
      {"path", path},
      {"architecture", lm.architecture},
      {"layers", lm.backbone.blocks.size()},
      {"width", lm.width()},
      {"vocabulary", lm.vocab},
      {"embedding_rows", lm.input_ids()},
      {"head_rows", lm.logits_size()},
      {"tied_head", lm.tied},
      {"tokenizer_entries", vocab_tokens},
      {"parameters", model->parameters()},
      {"weight_bytes", model->weight_bytes()},
      {"state_bytes", StateBytes(*model)},
      {"run_bytes", model->weight_bytes() + session.bytes()},
      // Master weights, gradients and two moments in f32; a sequence's activations come on top.
      {"train_bytes", model->parameters() * 16},
  };
  return Show(o, std::move(facts), model->folder.tensors);
}

std::string Joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

core::Result<int> InspectSequence(const InspectOptions& o, const std::string& path) {
  HOGNOSE_ASSIGN(const auto predictor, runtime::Predictor::Load(path, LoadOptionsOf(o.common)));
  for (const auto& warning : predictor->warnings()) Note(warning);
  const auto& model = predictor->model();
  const auto& config = model.config;
  size_t parameters = 0, weight_bytes = 0, state = 0;
  for (const auto& [name, tensor] : predictor->folder().tensors) {
    parameters += tensor.elements();
    weight_bytes += tensor.bytes();
  }
  for (const auto& shape : model.state_shapes()) state += shape.elements();
  core::Value::Object facts = {
      {"path", path},
      {"architecture", model.architecture},
      {"task", config.classification ? "classification" : "regression"},
      {"inputs", model.inputs()},
      {"features", Joined(config.features)},
      {"targets", Joined(config.targets)},
      {"outputs", model.outputs()},
      {"layers", model.backbone.blocks.size()},
      {"width", model.width()},
      {"parameters", parameters},
      {"weight_bytes", weight_bytes},
      {"state_bytes", state * sizeof(float)},
      {"run_bytes", weight_bytes + predictor->bytes()},
      {"train_bytes", parameters * 16},
  };
  if (!config.time.empty()) facts.emplace_back("time", config.time);
  if (!config.classification) facts.emplace_back("loss", config.huber ? "huber" : "mse");
  return Show(o, std::move(facts), predictor->folder().tensors);
}

core::Result<int> InspectStateFile(const InspectOptions& o, const std::string& path) {
  HOGNOSE_ASSIGN(const auto state, runtime::InspectState(path));
  core::Value::Object facts = {{"path", path},
                               {"format", "state"},
                               {"version", state.version},
                               {"model", state.model},
                               {"position", state.position},
                               {"layers", state.layers},
                               {"state_bytes", state.bytes}};
  return Show(o, std::move(facts), state.tensors);
}

core::Result<int> Inspect(const InspectOptions& o) {
  HOGNOSE_ASSIGN(const std::string path, ModelPath(o.path));
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return InspectStateFile(o, path);
  // A folder without a readable config.json gets the message that LoadModel has for it.
  if (const auto text = io::ReadFile(path + "/config.json"); text.ok()) {
    const auto config = io::ParseJson(*text, path + "/config.json");
    if (config.ok() && models::IsSequenceConfig(*config)) return InspectSequence(o, path);
  }
  return InspectModel(o, path);
}

}  // namespace

Runner AddInspect(CLI::App& app) {
  auto o = std::make_shared<InspectOptions>();
  AddPath(app, "PATH", &o->path, "Model folder or state file (default: the bundled model)");
  AddCommon(app, o->common);
  return [o] { return Inspect(*o); };
}

}  // namespace hognose::cli
