// hognose COMMAND ...: parses the command line and turns every outcome into output and an exit
// code.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <new>

#include "cli/command.h"
#include "cli/options.h"
#include "kernels/target.h"

namespace hognose::cli {
namespace {

struct Subcommand {
  const char* name;
  const char* description;
  Runner (*add)(CLI::App&);
};

constexpr Subcommand kSubcommands[] = {
    {"run", "Continue a text", AddRun},
    {"score", "Perplexity and logits of a given text", AddScore},
    {"tokenize", "Text on standard input to token ids, or back", AddTokenize},
    {"train", "A model from data", AddTrain},
    {"predict", "What a regression or classification model says to a table", AddPredict},
    {"quantize", "A checkpoint whose matrices take fewer bytes", AddQuantize},
    {"merge", "A model with a LoRA adapter added to its weights", AddMerge},
    {"inspect", "What a model folder or a state file holds", AddInspect},
    {"bench", "Speed of prompt and generation", AddBench},
};

// A file opened later must not get the number of a closed standard stream. Standard output becomes
// one that can't be written, so that what nobody can get is still an error.
void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1) (void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
  }
}

int Fail(const core::Status& status) {
  Note(status.message());
  return status.code() == core::StatusCode::kUsage ? kExitUsage : kExitFailed;
}

int PrintAll(std::string_view text) {
  Print(text);
  const core::Status status = OutputStatus();
  return status.ok() ? kExitDone : Fail(status);
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  EndOnInterrupt();
  CLI::App app("Runs and trains selective state-space models (Mamba, Mamba-2, Falcon-Mamba).",
               "hognose");
  app.set_version_flag("--version", HOGNOSE_VERSION);
  app.require_subcommand(1);
  app.footer("hognose SUBCOMMAND --help lists the options of each.");
  std::vector<std::pair<CLI::App*, Runner>> runners;
  for (const auto& sub : kSubcommands) {
    CLI::App* command = app.add_subcommand(sub.name, sub.description);
    runners.emplace_back(command, sub.add(*command));
  }
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "train") {
    if (const auto status = ExpandConfigFile(&arguments); !status.ok()) return Fail(status);
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return PrintAll(app.help());
  } catch (const CLI::CallForVersion&) {
    return PrintAll(fmt::format("hognose {}\n", HOGNOSE_VERSION));
  } catch (const CLI::ParseError& error) {
    return Fail(core::Status::Usage(DescribeParseError(error, app)));
  }
  if (const char* target = std::getenv("HOGNOSE_TARGET")) {
    if (const auto status = kernels::ForceTarget(target); !status.ok()) return Fail(status);
  }
  for (const auto& [command, run] : runners) {
    if (!command->parsed()) continue;
    const core::Result<int> code = run();
    if (!code.ok()) return Fail(code.status());
    if (const auto status = OutputStatus(); !status.ok()) return Fail(status);
    return *code;
  }
  return kExitUsage;
}

}  // namespace
}  // namespace hognose::cli

int main(int argc, char** argv) {
  try {
    return hognose::cli::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    return hognose::cli::Fail(hognose::core::Status::Failed("memory: got too little"));
  }
}
