// hognose merge: an adapter becomes part of a model's weights.
#include "runtime/merge.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/model_files.h"
#include "cli/options.h"
#include "cli/output_folder.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace hognose::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model, adapter, out;
  bool force = false;
};

core::Status WriteModel(const runtime::Model& model, const OutputFolder& folder) {
  HOGNOSE_ASSIGN(const auto merged, runtime::MergeAdapter(model));
  HOGNOSE_TRY(io::WriteSafetensors(folder / "model.safetensors",
                                   {merged.tensors.begin(), merged.tensors.end()},
                                   {{"format", "pt"}}));
  HOGNOSE_TRY(io::WriteFile(folder / "config.json", io::ToJson(model.folder.config, 2) + "\n"));
  return CopyModelFiles(model.path, folder);
}

core::Result<int> Merge(const Options& o) {
  if (o.model.empty()) return core::Status::Usage("MODEL: got none, want a model's folder");
  if (o.adapter.empty()) return core::Status::Usage("ADAPTER: got none, want an adapter's folder");
  if (o.out.empty()) return core::Status::Usage("OUT: got none, want a folder to write");
  HOGNOSE_ASSIGN(auto folder, OutputFolder::Create(o.out, {o.model, o.adapter}, o.force));
  HOGNOSE_ASSIGN(const auto model,
                 LoadModel(o.model, o.common, /*tokenizer=*/false, "", o.adapter));
  HOGNOSE_TRY(folder.Named(WriteModel(*model, folder)));
  HOGNOSE_TRY(folder.Commit());
  const size_t matrices = model->adapter->tensors.size() / 2;
  if (o.common.json) {
    PrintJson(core::Value::Object{{"out", o.out}, {"matrices", matrices}});
  } else {
    Print(fmt::format("{} matrices changed, {} written\n", matrices, o.out));
  }
  return kExitDone;
}

}  // namespace

Runner AddMerge(CLI::App& app) {
  auto o = std::make_shared<Options>();
  AddPath(app, "MODEL", &o->model, "Folder of the model");
  AddPath(app, "ADAPTER", &o->adapter, "Folder of the adapter (adapter_model.safetensors)");
  AddPath(app, "OUT", &o->out, "Folder to write");
  AddFlag(app, "--force", &o->force, "Replace an existing folder");
  AddCommon(app, o->common);
  return [o] { return Merge(*o); };
}

}  // namespace hognose::cli
