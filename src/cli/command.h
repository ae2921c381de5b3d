// What the subcommands share: options, output, signals. One file per subcommand, one line in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/value.h"
#include "runtime/model.h"

namespace hognose::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// Options that every computing command has.
struct CommonOptions {
  size_t threads = 0;  // 0: one a physical core
  bool json = false;
  bool strict = false;
};

// Adds -t, --json and --strict.
void AddCommon(CLI::App& app, CommonOptions& options);
// Adds the optional positional MODEL.
void AddModel(CLI::App& app, std::string& model);

// A subcommand: adds its options to `app` and returns what runs it. A Status becomes one line on standard
// error and the exit code.
using Runner = std::function<core::Result<int>()>;
Runner AddRun(CLI::App& app);
Runner AddScore(CLI::App& app);
Runner AddTokenize(CLI::App& app);
Runner AddInspect(CLI::App& app);
Runner AddBench(CLI::App& app);

// `path`, or the bundled model when it is empty.
core::Result<std::string> ModelPath(const std::string& path);
// Loads, and prints the model's warnings on standard error.
core::Result<std::shared_ptr<const runtime::Model>> LoadModel(const std::string& path,
                                                              const CommonOptions& options,
                                                              bool tokenizer);

// Standard output, unbuffered. False once the reader is gone (a closed pipe: the command then ends
// quietly); any other failure is kept for OutputStatus().
bool Print(std::string_view text);
core::Status OutputStatus();
bool PrintJson(const core::Value& value);  // one line
// One line on standard error.
void Note(std::string_view line);

// True after Ctrl-C. A second one ends the process at once.
bool Interrupted();
void CatchInterrupt();

// A progress bar on standard error, only where that is a terminal.
class Progress {
 public:
  Progress(std::string label, size_t total);
  ~Progress();
  void Update(size_t done);

 private:
  std::string label_;
  size_t total_;
  int shown_ = -1;  // percent
  bool terminal_;
};

}  // namespace hognose::cli
