// Model: a checkpoint folder, opened, checked and ready for sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/thread_pool.h"
#include "io/adapter.h"
#include "io/model_folder.h"
#include "io/tokenizer/tokenizer.h"
#include "models/language_model.h"
#include "runtime/quantize.h"

namespace hognose::runtime {

struct LoadOptions {
  size_t threads = 0;   // 0: one a physical core
  bool pin = false;     // each worker stays on a processor of its own
  bool strict = false;  // unknown tensors are an error
  bool tokenizer = true;
  std::optional<QuantizeOptions> quantize = {};  // re-encode the matrices in memory
  std::string adapter = {};                      // folder of a LoRA adapter to add
};

// A pool of 1 to 1,024 threads (0: one a physical core), or what the system says against it.
core::Result<std::unique_ptr<core::ThreadPool>> NewPool(size_t threads, bool pin = false);

// What messages about a folder's tensors begin with.
std::string WeightsName(const io::ModelFolder& folder);
// Fails on a value that isn't finite, naming file, tensor and element.
core::Status CheckFinite(core::Exec exec, const io::ModelFolder& folder);
// 32 hex digits over the configuration and all weights: names a model in state files. Reads all
// weights.
std::string DigestOf(const io::ModelFolder& folder, const core::Value* adapter = nullptr);

// Immutable after Load and shared by its sessions, which may live on different threads: each call
// that computes takes `compute`, since the pool has one caller at a time.
struct Model {
  std::string path;
  io::ModelFolder folder;              // its tensors are the ones in use, quantised on request
  QuantizedTensors quantized;          // owns what `folder.tensors` then points to
  std::optional<io::Adapter> adapter;  // its tensors are among folder.tensors
  models::LanguageModel lm;
  std::optional<io::Tokenizer> tokenizer;  // absent if the folder has no tokenizer.json
  std::vector<int32_t> eos_ids;            // from generation_config.json, else config.json
  // sampleable[id]: a token that text can have; padding rows and holes are not. Size
  // lm.logits_size().
  std::vector<bool> sampleable;
  std::vector<std::string> warnings;
  std::unique_ptr<core::ThreadPool> pool;
  mutable std::mutex compute;

  // Everything is checked here: names, shapes, types, NaN. Messages begin with the file.
  static core::Result<std::shared_ptr<const Model>> Load(const std::string& path,
                                                         const LoadOptions& options);

  core::Exec exec() const { return {*pool}; }
  size_t parameters() const;
  size_t weight_bytes() const;
  // DigestOf the folder, computed at the first call.
  const std::string& Digest() const;

 private:
  mutable std::once_flag digest_once_;
  mutable std::string digest_;
};

}  // namespace hognose::runtime
