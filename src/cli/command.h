// What the subcommands share: options, input, output, signals. One file per subcommand, one line in
// main.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/value.h"
#include "runtime/model.h"

namespace CLI {
class App;
}  // namespace CLI

namespace hognose::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// Options that every computing command has.
struct CommonOptions {
  std::optional<uint64_t> threads;  // default: one a physical core
  bool pin = false;
  bool json = false;
  bool strict = false;
};

// Adds -t, --pin, --json and --strict.
void AddCommon(CLI::App& app, CommonOptions& options);
runtime::LoadOptions LoadOptionsOf(const CommonOptions& options);
// Adds the optional positional MODEL.
void AddModel(CLI::App& app, std::string& model);

// A subcommand: adds its options to `app` and returns what runs it. A Status becomes one line on
// standard error and the exit code.
using Runner = std::function<core::Result<int>()>;
Runner AddRun(CLI::App& app);
Runner AddScore(CLI::App& app);
Runner AddTokenize(CLI::App& app);
Runner AddQuantize(CLI::App& app);
Runner AddMerge(CLI::App& app);
Runner AddInspect(CLI::App& app);
Runner AddBench(CLI::App& app);
Runner AddTrain(CLI::App& app);
Runner AddPredict(CLI::App& app);

// `path`, or the bundled model when it is empty.
core::Result<std::string> ModelPath(const std::string& path);
// Loads, and prints the model's warnings on standard error. `quantize`: "int8", "int4" or "";
// `adapter`: a folder, or "".
core::Result<std::shared_ptr<const runtime::Model>> LoadModel(const std::string& path,
                                                              const CommonOptions& options,
                                                              bool tokenizer,
                                                              const std::string& quantize = "",
                                                              const std::string& adapter = "");

// Bytes that one sequence remembers, as a state file stores them (without the logits).
size_t StateBytes(const runtime::Model& model);

// The next bytes of standard input, as many as there are: 0 at its end. After Ctrl-C as below.
core::Result<size_t> ReadSome(std::span<char> bytes);
// All of standard input. After Ctrl-C (see CatchInterrupt) it fails; the caller looks at
// Interrupted() first.
core::Result<std::string> ReadStandardInput();
// A file's bytes, or standard input for "-".
core::Result<std::string> ReadInput(const std::string& path);
// "standard input" for "-", else the path: how messages begin.
std::string InputName(const std::string& path);

// Standard output, unbuffered. False once the reader is gone (a closed pipe: the command then ends
// quietly); any other failure is kept for OutputStatus().
bool Print(std::string_view text);
// False once a Print failed: nobody wants a report then.
bool OutputOpen();
core::Status OutputStatus();
bool PrintJson(const core::Value& value);  // one line
// One line on standard error, whatever `line` holds.
void Note(std::string_view line);
// Fails if `path` can't become a file: better before long work than after it.
core::Status CheckWritable(const std::string& path);

// Ctrl-C ends the process at once with kExitInterrupted, until a command that has something to
// finish calls CatchInterrupt: then the first one only makes Interrupted() true.
void EndOnInterrupt();
void CatchInterrupt();
bool Interrupted();

// A progress bar on standard error, only where that is a terminal.
class Progress {
 public:
  Progress(std::string label, size_t total);
  ~Progress();
  // `text`, if any, follows the bar.
  void Update(size_t done, const std::string& text = {});
  // Takes the bar away until the next Update, to make room for a line.
  void Clear();

 private:
  std::string label_;
  size_t total_;
  int shown_ = -1;  // percent
  bool terminal_;
};

}  // namespace hognose::cli
