// hognose COMMAND ...: parses the command line and turns every outcome into output and an exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/command.h"
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
    {"inspect", "What a model folder or a state file holds", AddInspect},
    {"bench", "Speed of prompt and generation", AddBench},
};

// A file opened later must not get the number of a closed standard stream.
void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1) (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

int Fail(const core::Status& status) {
  Note(status.message());
  return status.code() == core::StatusCode::kUsage ? kExitUsage : kExitFailed;
}

// CLI11's faults as one line that begins with the flag.
std::string Describe(const CLI::ParseError& error, const CLI::App& app) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const auto rest = app.remaining(true);
    if (!rest.empty()) text = fmt::format("{}: unknown argument", rest.front());
  }
  const size_t line = text.find('\n');
  return text.substr(0, line);
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  CLI::App app("Runs selective state-space models (Mamba, Mamba-2, Falcon-Mamba).", "hognose");
  app.set_version_flag("--version", HOGNOSE_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, Runner>> runners;
  for (const auto& sub : kSubcommands) {
    CLI::App* command = app.add_subcommand(sub.name, sub.description);
    runners.emplace_back(command, sub.add(*command));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    Note(Describe(error, app));
    return kExitUsage;
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

int main(int argc, char** argv) { return hognose::cli::Main(argc, argv); }
