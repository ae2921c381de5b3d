#include "runtime/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <system_error>
#include <thread>

#include "core/cpu.h"
#include "io/hash.h"
#include "io/json.h"
#include "kernels/find_nonfinite/find_nonfinite.h"
#include "models/fields.h"
#include "models/registry.h"

namespace hognose::runtime {
namespace {

core::Status NotFinite(const io::SafetensorsFile& file, const std::string& name, size_t element) {
  return core::Status::Failed(
      fmt::format("{}: {}: element {} is not a finite number", file.path(), name, element));
}

core::Status CheckFile(core::Exec exec, const io::SafetensorsFile& file) {
  std::vector<core::TensorView> tensors;
  for (const auto& [name, tensor] : file.tensors()) tensors.push_back(tensor);
  const auto bad = kernels::FindNonFinite(exec, tensors);
  if (!bad) return {};
  const auto& name = std::next(file.tensors().begin(), static_cast<ptrdiff_t>(bad->tensor))->first;
  return NotFinite(file, name, bad->element);
}

}  // namespace

std::string WeightsName(const io::ModelFolder& folder) {
  return folder.files.size() == 1 ? folder.files[0].path()
                                  : folder.path + "/model.safetensors.index.json";
}

std::string DigestOf(const io::ModelFolder& folder, const core::Value* adapter) {
  io::Hasher hasher;
  hasher.Add(io::ToJson(folder.config));
  if (adapter != nullptr) hasher.Add(io::ToJson(*adapter));
  for (const auto& [name, tensor] : folder.tensors) {
    hasher.Add(fmt::format("\n{} {}\n", name, core::ToString(tensor)));
    hasher.Add({static_cast<const char*>(tensor.data), tensor.bytes()});
  }
  return hasher.Hex();
}

core::Status CheckFinite(core::Exec exec, const io::ModelFolder& folder) {
  for (const auto& file : folder.files) HOGNOSE_TRY(CheckFile(exec, file));
  return {};
}

namespace {

// An adapter's tensors beside the matrices that they belong to; what has no matrix is found later,
// when nothing takes it.
core::Status CheckShapes(const io::Adapter& adapter, const io::ModelFolder& folder) {
  models::FloatStore none;
  const models::TensorLoader stored(folder.tensors, none, folder.path);
  for (const auto& [name, tensor] : adapter.tensors) {
    const bool a = name.ends_with(io::kLoraA);
    const std::string matrix = name.substr(0, name.size() - io::kLoraA.size()) + ".weight";
    const auto found = stored.Find(matrix);
    if (!found.ok() || found->rank != 2) continue;
    const size_t want = found->shape[a ? 1 : 0];
    if (tensor.shape[a ? 1 : 0] == want) continue;
    return core::Status::Failed(fmt::format("{}: {}: got {}, want {} {}, as {} has",
                                            adapter.file.path(), name, core::ToString(tensor), want,
                                            a ? "columns" : "rows", folder.path));
  }
  return {};
}

// Their scale stands elsewhere: with any other they would be another model.
core::Status CheckNoAdapter(const io::ModelFolder& folder) {
  for (const auto& [name, tensor] : folder.tensors) {
    if (!name.ends_with(io::kLoraA) && !name.ends_with(io::kLoraB)) continue;
    return core::Status::Failed(
        fmt::format("{}: {}: got an adapter's tensor, want it in a folder of its own",
                    WeightsName(folder), name));
  }
  return {};
}

core::Status AddAdapter(const std::string& folder, Model& model) {
  HOGNOSE_ASSIGN(model.adapter, io::OpenAdapter(folder));
  HOGNOSE_TRY(CheckShapes(*model.adapter, model.folder));
  HOGNOSE_TRY(CheckFile(model.exec(), model.adapter->file));
  for (const auto& [name, tensor] : model.adapter->tensors) {
    model.folder.tensors.insert_or_assign(name, tensor);
  }
  return {};
}

// eos_token_id of generation_config.json, else of config.json: an id, several, or none.
core::Result<std::vector<int32_t>> ReadEos(const io::ModelFolder& folder, size_t ids) {
  const bool generation =
      folder.generation_config && folder.generation_config->Find("eos_token_id") != nullptr;
  const core::Value& config = generation ? *folder.generation_config : folder.config;
  models::Fields fields(config,
                        folder.path + (generation ? "/generation_config.json" : "/config.json"));
  std::vector<int32_t> eos;
  for (const int64_t id : fields.Ints("eos_token_id")) {
    if (id < 0 || static_cast<size_t>(id) >= ids) {
      return core::Status::Failed(
          fmt::format("{}: eos_token_id: got {}, want an id below {}", fields.where(), id, ids));
    }
    eos.push_back(static_cast<int32_t>(id));
  }
  HOGNOSE_TRY(fields.status());
  return eos;
}

// An adapter that nothing takes would change nothing: always an error.
core::Status CheckUnknown(Model& model, bool strict) {
  const auto& unknown = model.lm.unknown_tensors;
  for (const auto& name : unknown) {
    if (!model.adapter || !model.adapter->tensors.contains(name)) continue;
    return core::Status::Failed(fmt::format("{}: {}: got an adapter of a module that {} has not",
                                            model.adapter->file.path(), name, model.path));
  }
  if (unknown.empty()) return {};
  const std::string message = unknown.size() == 1
                                  ? fmt::format("{}: {}: unknown tensor", model.path, unknown[0])
                                  : fmt::format("{}: {}: unknown tensor (and {} more)", model.path,
                                                unknown[0], unknown.size() - 1);
  if (strict) return core::Status::Failed(message + ", want none");
  model.warnings.push_back(message + ", not used");
  return {};
}

std::vector<bool> Sampleable(const Model& model) {
  std::vector<bool> ids(model.lm.logits_size());
  for (size_t id = 0; id < ids.size(); ++id) {
    ids[id] = id < model.lm.vocab && id < model.lm.input_ids() &&
              (!model.tokenizer || model.tokenizer->Has(static_cast<int32_t>(id)));
  }
  return ids;
}

core::Status CheckSampleable(const Model& model) {
  if (std::find(model.sampleable.begin(), model.sampleable.end(), true) != model.sampleable.end()) {
    return {};
  }
  return core::Status::Failed(fmt::format("{}: got no token with an id below {}, want some",
                                          model.folder.tokenizer_path, model.lm.vocab));
}

core::Status LoadWeights(Model& model, const LoadOptions& options) {
  const std::string weights = WeightsName(model.folder);
  if (options.quantize) {
    core::Exec exec = model.exec();
    const auto check = [&](const io::SafetensorsFile& file, const std::string& name) {
      const auto bad = kernels::FindNonFinite(exec, file.tensors().at(name));
      return bad ? NotFinite(file, name, *bad) : core::Status();
    };
    HOGNOSE_ASSIGN(model.quantized, QuantizeFolder(exec, model.folder, *options.quantize, check));
    model.folder.tensors = model.quantized.tensors;
  }
  HOGNOSE_TRY(CheckNoAdapter(model.folder));
  if (!options.adapter.empty()) HOGNOSE_TRY(AddAdapter(options.adapter, model));
  const models::Checkpoint checkpoint{.config = model.folder.config,
                                      .config_name = model.folder.path + "/config.json",
                                      .tensors = model.folder.tensors,
                                      .weights_name = weights,
                                      .adapter_scale = model.adapter ? model.adapter->scale : 1.0f};
  HOGNOSE_ASSIGN(model.lm, models::Build(checkpoint));
  HOGNOSE_TRY(CheckUnknown(model, options.strict));
  return options.quantize ? core::Status() : CheckFinite(model.exec(), model.folder);
}

}  // namespace

core::Result<std::unique_ptr<core::ThreadPool>> NewPool(size_t threads, bool pin) {
  if (threads == 0) threads = core::Cpu().physical_cores();
  constexpr size_t kMost = 1024;
  if (threads > kMost) {
    return core::Status::Usage(fmt::format("threads: got {}, want at most {}", threads, kMost));
  }
  try {
    return std::make_unique<core::ThreadPool>(threads, pin);
  } catch (const std::system_error& error) {
    return core::Status::Failed(
        fmt::format("threads: could not start {}: {}", threads, error.what()));
  }
}

namespace {

// The tokenizer is read beside the weights' check: both take about as long.
core::Status LoadParts(Model& model, const LoadOptions& options) {
  std::optional<core::Result<io::Tokenizer>> tokenizer;
  std::thread reader;
  if (options.tokenizer && !model.folder.tokenizer_path.empty()) {
    reader = std::thread([&] { tokenizer = io::Tokenizer::Load(model.folder.tokenizer_path); });
  }
  const core::Status status = LoadWeights(model, options);
  if (reader.joinable()) reader.join();
  HOGNOSE_TRY(status);
  if (!tokenizer) return {};
  HOGNOSE_ASSIGN(model.tokenizer, std::move(*tokenizer));
  return {};
}

}  // namespace

core::Result<std::shared_ptr<const Model>> Model::Load(const std::string& path,
                                                       const LoadOptions& options) {
  auto model = std::make_shared<Model>();
  model->path = path;
  HOGNOSE_ASSIGN(model->folder, io::OpenModelFolder(path));
  HOGNOSE_ASSIGN(model->pool, NewPool(options.threads, options.pin));
  HOGNOSE_TRY(LoadParts(*model, options));
  HOGNOSE_ASSIGN(model->eos_ids, ReadEos(model->folder, model->lm.logits_size()));
  model->sampleable = Sampleable(*model);
  HOGNOSE_TRY(CheckSampleable(*model));
  return std::shared_ptr<const Model>(std::move(model));
}

size_t Model::parameters() const {
  size_t sum = 0;
  for (const auto& [name, tensor] : folder.tensors) {
    const bool beside = name.ends_with(".scales") || name.ends_with(".shape");
    if (beside && folder.tensors.contains(name.substr(0, name.rfind('.')))) continue;
    const auto shape = folder.tensors.find(name + ".shape");
    if (shape == folder.tensors.end()) {
      sum += tensor.elements();
    } else {
      const auto* sizes = static_cast<const int64_t*>(shape->second.data);
      sum += static_cast<size_t>(sizes[0] * sizes[1]);
    }
  }
  return sum;
}

size_t Model::weight_bytes() const {
  size_t sum = 0;
  for (const auto& [name, tensor] : folder.tensors) sum += tensor.bytes();
  return sum;
}

const std::string& Model::Digest() const {
  std::call_once(digest_once_,
                 [this] { digest_ = DigestOf(folder, adapter ? &adapter->config : nullptr); });
  return digest_;
}

}  // namespace hognose::runtime
