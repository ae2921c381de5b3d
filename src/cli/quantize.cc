// hognose quantize: a checkpoint whose matrices take fewer bytes.
#include "runtime/quantize.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "cli/command.h"
#include "cli/options.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "runtime/perplexity.h"

namespace hognose::cli {
namespace {

namespace fs = std::filesystem;

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

core::Status CopyFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(from, error)) return {};
  HOGNOSE_ASSIGN(const std::string bytes, io::ReadFile(from.string()));
  return io::WriteFile(to.string(), bytes);
}

core::Status WriteFolder(const Options& o, const runtime::Model& model, const fs::path& folder) {
  const Target& target = Find(o.to);
  HOGNOSE_ASSIGN(const auto quantized,
                 runtime::Quantize(model.exec(), model.folder.tensors,
                                   {.encoding = target.encoding, .group = o.group}, model.path));
  const std::vector<std::pair<std::string, core::TensorView>> tensors(quantized.tensors.begin(),
                                                                      quantized.tensors.end());
  const std::string scheme = fmt::format("{} group {}", target.name, o.group);
  HOGNOSE_TRY(io::WriteSafetensors((folder / "model.safetensors").string(), tensors,
                                   {{"format", "pt"}, {"hognose", scheme}}));
  HOGNOSE_TRY(
      io::WriteFile((folder / "config.json").string(),
                    io::ToJson(WithScheme(model.folder.config, target, o.group), 2) + "\n"));
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json"}) {
    HOGNOSE_TRY(CopyFile(fs::path(model.path) / name, folder / name));
  }
  return {};
}

// Puts the finished folder in its place; an old one is kept until then.
core::Status Install(const fs::path& made, const fs::path& out) {
  std::error_code error;
  const fs::path old = made.string() + ".old";
  const bool replace = fs::exists(out, error);
  if (replace) fs::rename(out, old, error);
  if (!error) fs::rename(made, out, error);
  if (error) {
    std::error_code undo;
    if (replace && !fs::exists(out, undo)) fs::rename(old, out, undo);
    return core::Status::Failed(
        fmt::format("{}: could not write: {}", out.string(), error.message()));
  }
  if (replace) fs::remove_all(old, error);
  return {};
}

core::Status MakeFolder(const Options& o, const runtime::Model& model) {
  fs::path out = fs::path(o.out).lexically_normal();
  if (!out.has_filename()) out = out.parent_path();
  std::error_code error;
  if (fs::exists(out, error) && !o.force) {
    return core::Status::Failed(
        fmt::format("{}: got an existing folder, want a new one (or --force)", o.out));
  }
  const fs::path made = fmt::format("{}.part.{}", out.string(), getpid());
  if (!fs::create_directory(made, error)) {
    return core::Status::Failed(fmt::format("{}: could not create: {}", o.out, error.message()));
  }
  core::Status status = WriteFolder(o, model, made);
  if (status.ok()) status = Install(made, out);
  fs::remove_all(made, error);
  return status;
}

core::Result<double> Perplexity(const Options& o, const std::string& folder,
                                const std::string& text) {
  HOGNOSE_ASSIGN(const auto model, LoadModel(folder, o.common, /*tokenizer=*/true));
  if (!model->tokenizer) {
    return core::Status::Failed(fmt::format(
        "{}/tokenizer.json: got no such file, --calibration needs a tokenizer", folder));
  }
  HOGNOSE_ASSIGN(const auto ids, model->tokenizer->Encode(text));
  HOGNOSE_ASSIGN(auto session, runtime::Session::Create(model, {}));
  Progress bar("perplexity", ids.size());
  HOGNOSE_ASSIGN(const auto sum, runtime::MeasureNll(session, ids, [&](size_t done) {
                   bar.Update(done);
                   return true;
                 }));
  if (sum.targets() == 0) {
    return core::Status::Failed(
        fmt::format("{}: got fewer than two tokens, want more", InputName(o.calibration)));
  }
  return std::exp(sum.mean());
}

core::Result<int> Judge(const Options& o, const std::string& model, const std::string& text,
                        core::Value::Object report) {
  HOGNOSE_ASSIGN(const double before, Perplexity(o, model, text));
  HOGNOSE_ASSIGN(const double after, Perplexity(o, o.out, text));
  const double rise = after / before - 1.0;
  const double allowed = Find(o.to).allowed_rise;
  report.emplace_back("perplexity_before", before);
  report.emplace_back("perplexity_after", after);
  report.emplace_back("rise", rise);
  report.emplace_back("allowed_rise", allowed);
  if (o.common.json) {
    PrintJson(report);
  } else {
    Print(fmt::format("perplexity {:.4f} -> {:.4f}: {:+.3f} %, gate {:.1f} %\n", before, after,
                      rise * 100.0, allowed * 100.0));
  }
  if (rise <= allowed || !o.gate) return kExitDone;
  return core::Status::Failed(fmt::format("--gate: got a rise of {:.3f} %, want at most {:.1f} %",
                                          rise * 100.0, allowed * 100.0));
}

core::Result<int> Quantize(const Options& o) {
  if (o.out.empty()) return core::Status::Usage("OUT: missing, want a folder to write");
  if (o.to.empty()) return core::Status::Usage("--to: missing, want int8, int4 or bf16");
  if (o.group != 32 && o.group != 64 && o.group != 128) {
    return core::Status::Usage(fmt::format("--group: got {}, want 32, 64 or 128", o.group));
  }
  if (o.gate && o.calibration.empty()) {
    return core::Status::Usage("--gate: needs --calibration FILE");
  }
  std::string text;
  if (!o.calibration.empty()) {
    HOGNOSE_ASSIGN(text, ReadInput(o.calibration));
  }
  core::Value::Object report;
  {
    HOGNOSE_ASSIGN(const auto model, LoadModel(o.model, o.common, /*tokenizer=*/false));
    HOGNOSE_TRY(MakeFolder(o, *model));
    report = {{"model", o.model}, {"out", o.out}, {"bytes_before", model->weight_bytes()}};
  }
  std::error_code error;
  report.emplace_back("bytes_after", static_cast<uint64_t>(fs::file_size(
                                         fs::path(o.out) / "model.safetensors", error)));
  if (!o.calibration.empty()) return Judge(o, o.model, text, std::move(report));
  if (o.common.json) PrintJson(report);
  return kExitDone;
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
