// hognose quantize: a checkpoint whose matrices take fewer bytes.
#include "runtime/quantize.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "cli/command.h"
#include "cli/model_files.h"
#include "cli/options.h"
#include "cli/output_folder.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "runtime/perplexity.h"

namespace hognose::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, out, calibration;
  std::string to;
  uint64_t group = 64;
  bool gate = false;
  bool force = false;
};

// What --to asks for, and by how much the perplexity may rise.
struct Target {
  std::string_view name;
  codecs::Encoding encoding;
  double allowed_rise;
};
constexpr Target kTargets[] = {{"int8", codecs::Encoding::kInt8, 0.001},
                               {"int4", codecs::Encoding::kInt4, 0.03},
                               {"bf16", codecs::Encoding::kPlain, 0.001}};

const Target& Find(std::string_view name) {
  for (const auto& target : kTargets) {
    if (target.name == name) return target;
  }
  HOGNOSE_CHECK(false);
}

// The configuration with the scheme, for readers of the folder; the tensors alone decide how they
// load.
core::Value WithScheme(const core::Value& config, const Target& target, size_t group) {
  core::Value::Object object;
  for (const auto& member : *config.AsObject()) {
    if (member.first != "quantization_config") object.push_back(member);
  }
  if (target.encoding != codecs::Encoding::kPlain) {
    object.emplace_back("quantization_config", core::Value::Object{{"quant_method", "hognose"},
                                                                   {"format", target.name},
                                                                   {"group_size", group}});
  }
  return object;
}

// Where to leave after Ctrl-C; Quantize then says nothing and cleans up.
core::Status CheckInterrupt() {
  return Interrupted() ? core::Status::Failed("quantize: interrupted") : core::Status();
}

// Tensor by tensor, so that the bar moves and Ctrl-C is heard.
core::Result<runtime::QuantizedTensors> Encode(const Options& o, const runtime::Model& model) {
  const runtime::QuantizeOptions options = {.encoding = Find(o.to).encoding, .group = o.group};
  Progress bar("quantize", model.weight_bytes());
  size_t done = 0;
  const auto before = [&](const io::SafetensorsFile& file, const std::string& name) {
    bar.Update(done);
    done += file.tensors().at(name).bytes();
    return CheckInterrupt();
  };
  HOGNOSE_ASSIGN(auto all, runtime::QuantizeFolder(model.exec(), model.folder, options, before));
  bar.Update(done);
  HOGNOSE_TRY(CheckInterrupt());
  return all;
}

// Fills `folder` and returns the bytes of its weights.
core::Result<uint64_t> WriteModel(const Options& o, const runtime::Model& model,
                                  const OutputFolder& folder) {
  HOGNOSE_ASSIGN(const auto quantized, Encode(o, model));
  const std::vector<std::pair<std::string, core::TensorView>> tensors(quantized.tensors.begin(),
                                                                      quantized.tensors.end());
  const Target& target = Find(o.to);
  const std::string scheme = target.encoding == codecs::Encoding::kPlain
                                 ? std::string(target.name)
                                 : fmt::format("{} group {}", target.name, o.group);
  HOGNOSE_TRY(io::WriteSafetensors(folder / "model.safetensors", tensors,
                                   {{"format", "pt"}, {"hognose", scheme}}));
  HOGNOSE_TRY(
      io::WriteFile(folder / "config.json",
                    io::ToJson(WithScheme(model.folder.config, target, o.group), 2) + "\n"));
  HOGNOSE_TRY(CopyModelFiles(model.path, folder));
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  return bytes;
}

core::Result<std::vector<int32_t>> EncodeText(const Options& o, const runtime::Model& model,
                                              const std::string& text) {
  if (!model.tokenizer) {
    return core::Status::Failed(fmt::format(
        "{}/tokenizer.json: got no such file, --calibration needs a tokenizer", model.path));
  }
  const std::string where = InputName(o.calibration);
  auto ids = model.tokenizer->Encode(text);
  if (!ids.ok()) return core::Status::Failed(where + ": " + ids.status().message());
  if (ids->size() < 2) {
    return core::Status::Failed(
        fmt::format("{}: got a text of {} tokens, want at least two", where, ids->size()));
  }
  return ids;
}

// The mean negative log-likelihood.
core::Result<double> Nll(const Options& o, std::shared_ptr<const runtime::Model> model,
                         std::span<const int32_t> ids, const char* when) {
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(std::move(model), {}));
  Progress bar(fmt::format("perplexity {}", when), ids.size());
  const auto sum = runtime::MeasureNll(session, ids, [&](size_t done) {
    bar.Update(done);
    return !Interrupted();
  });
  HOGNOSE_TRY(CheckInterrupt());
  if (sum.ok()) return sum->mean();
  const bool of_text = sum.status().message().starts_with("token ");
  return core::Status::Failed((of_text ? InputName(o.calibration) + ": " : "") +
                              sum.status().message());
}

// What became of the model.
struct Outcome {
  uint64_t bytes_before = 0, bytes_after = 0;
  double nll_before = 0.0, nll_after = 0.0;  // with --calibration only
  double rise() const { return std::expm1(nll_after - nll_before); }
};

core::Value FiniteOrNull(double value) {  // JSON has no infinity
  return std::isfinite(value) ? core::Value(value) : core::Value();
}

void Report(const Options& o, const Outcome& outcome) {
  const Target& target = Find(o.to);
  const bool measured = !o.calibration.empty();
  const double before = std::exp(outcome.nll_before), after = std::exp(outcome.nll_after);
  if (o.common.json) {
    core::Value::Object report = {{"model", o.model},
                                  {"out", o.out},
                                  {"bytes_before", outcome.bytes_before},
                                  {"bytes_after", outcome.bytes_after}};
    if (measured) {
      report.emplace_back("perplexity_before", FiniteOrNull(before));
      report.emplace_back("perplexity_after", FiniteOrNull(after));
      report.emplace_back("rise", FiniteOrNull(outcome.rise()));
      report.emplace_back("allowed_rise", target.allowed_rise);
    }
    PrintJson(report);
    return;
  }
  Print(fmt::format("weights {} -> {} bytes\n", outcome.bytes_before, outcome.bytes_after));
  if (!measured) return;
  Print(fmt::format("perplexity {:.4f} -> {:.4f}: {:+.3f} %, gate {:.1f} %\n", before, after,
                    outcome.rise() * 100.0, target.allowed_rise * 100.0));
}

core::Status CheckGate(const Options& o, const Outcome& outcome) {
  const double allowed = Find(o.to).allowed_rise;
  if (!o.gate || outcome.rise() <= allowed) return {};
  return core::Status::Failed(
      fmt::format("--gate: got a perplexity {:.3f} % higher, want at most {:.1f} %; {} not written",
                  outcome.rise() * 100.0, allowed * 100.0, o.out));
}

core::Result<int> Work(const Options& o) {
  const bool measure = !o.calibration.empty();
  std::string text;
  if (measure) {
    HOGNOSE_ASSIGN(text, ReadInput(o.calibration));
  }
  HOGNOSE_ASSIGN(auto folder, OutputFolder::Create(o.out, {o.model}, o.force));
  HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, /*tokenizer=*/measure));
  Outcome outcome = {.bytes_before = model->weight_bytes()};
  std::vector<int32_t> ids;
  if (measure) {
    HOGNOSE_ASSIGN(ids, EncodeText(o, *model, text));
    HOGNOSE_ASSIGN(outcome.nll_before, Nll(o, model, ids, "before"));
  }
  const auto bytes = WriteModel(o, *model, folder);
  HOGNOSE_TRY(folder.Named(bytes.status()));
  outcome.bytes_after = *bytes;
  if (measure) {
    // As it was written. Warnings of the same tensors were printed already.
    const auto written = runtime::Model::Load(
        folder.path(), {.threads = o.common.threads.value_or(0), .tokenizer = false});
    HOGNOSE_TRY(folder.Named(written.status()));
    HOGNOSE_ASSIGN(outcome.nll_after, Nll(o, *written, ids, "after"));
  }
  const core::Status gate = CheckGate(o, outcome);
  if (gate.ok()) HOGNOSE_TRY(folder.Commit());
  Report(o, outcome);
  HOGNOSE_TRY(gate);
  return kExitDone;
}

core::Status CheckOptions(const Options& o) {
  if (o.model.empty()) return core::Status::Usage("MODEL: got none, want a model's folder");
  if (o.out.empty()) return core::Status::Usage("OUT: got none, want a folder to write");
  if (o.to.empty()) return core::Status::Usage("--to: got none, want int8|int4|bf16");
  if (o.group != 32 && o.group != 64 && o.group != 128) {
    return core::Status::Usage(fmt::format("--group: got {}, want 32, 64 or 128", o.group));
  }
  if (o.gate && o.calibration.empty()) {
    return core::Status::Usage("--gate: got no --calibration FILE, want one to measure with");
  }
  return {};
}

core::Result<int> Quantize(const Options& o) {
  HOGNOSE_TRY(CheckOptions(o));
  CatchInterrupt();
  auto code = Work(o);
  if (Interrupted()) return kExitInterrupted;
  return code;
}

}  // namespace

Runner AddQuantize(CLI::App& app) {
  auto o = std::make_shared<Options>();
  AddPath(app, "MODEL", &o->model, "Folder of the model to quantise");
  AddPath(app, "OUT", &o->out, "Folder to write");
  AddChoice(app, "--to", &o->to, {"int8", "int4", "bf16"}, "How matrices are stored");
  AddInteger(app, "--group", &o->group, 1, 1024, "Columns that share a scale: 32, 64 or 128");
  AddPath(app, "--calibration", &o->calibration,
          "UTF-8 text: prints the perplexity before and after");
  AddFlag(app, "--gate", &o->gate, "Exit code 1 if the perplexity rises more than it may");
  AddFlag(app, "--force", &o->force, "Replace an existing folder");
  AddCommon(app, o->common);
  return [o] { return Quantize(*o); };
}

}  // namespace hognose::cli
