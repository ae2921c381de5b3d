#include "cli/command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "io/json.h"

namespace hognose::cli {
namespace {

// Process-wide by nature: what standard output and Ctrl-C have told so far.
std::atomic<bool> interrupted{false};
std::atomic<int> output_error{0};

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// The folder of the executable, symbolic links resolved; empty if the system doesn't tell.
std::filesystem::path ExecutableFolder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0 || n == static_cast<ssize_t>(sizeof(path))) return {};
  return std::filesystem::path(std::string(path, static_cast<size_t>(n))).parent_path();
}

}  // namespace

void AddCommon(CLI::App& app, CommonOptions& options) {
  app.add_option("-t,--threads", options.threads, "Threads (default: physical cores)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", options.json, "Machine-readable output on standard output");
  app.add_flag("--strict", options.strict, "Unknown tensors are an error");
}

void AddModel(CLI::App& app, std::string& model) {
  app.add_option("MODEL", model,
                 "Folder with config.json and *.safetensors (default: the bundled model)");
}

core::Result<std::string> ModelPath(const std::string& path) {
  if (!path.empty()) return path;
  const auto folder = ExecutableFolder();
  const std::filesystem::path candidates[] = {
      folder / "../models/demo", folder / "../share/hognose/models/demo", HOGNOSE_INSTALLED_MODEL};
  std::error_code error;
  for (const auto& candidate : candidates) {
    if (std::filesystem::exists(candidate / "config.json", error)) {
      return candidate.lexically_normal().string();
    }
  }
  return core::Status::Failed(
      fmt::format("MODEL: the bundled model was not found at {}, name a model's folder",
                  candidates[0].lexically_normal().string()));
}

core::Result<std::shared_ptr<const runtime::Model>> LoadModel(const std::string& path,
                                                              const CommonOptions& options,
                                                              bool tokenizer) {
  HOGNOSE_ASSIGN(const std::string folder, ModelPath(path));
  HOGNOSE_ASSIGN(auto model, runtime::Model::Load(folder, {.threads = options.threads,
                                                           .strict = options.strict,
                                                           .tokenizer = tokenizer}));
  for (const auto& warning : model->warnings) Note(warning);
  return model;
}

bool Print(std::string_view text) {
  if (output_error.load() != 0) return false;
  if (WriteAll(STDOUT_FILENO, text)) return true;
  output_error.store(errno);
  return false;
}

core::Status OutputStatus() {
  const int error = output_error.load();
  if (error == 0 || error == EPIPE) return {};
  return core::Status::Failed(fmt::format("standard output: {}", std::strerror(error)));
}

bool PrintJson(const core::Value& value) { return Print(io::ToJson(value) + "\n"); }

void Note(std::string_view line) {
  (void)WriteAll(STDERR_FILENO, fmt::format("{}\n", line));  // nobody is left to be told
}

bool Interrupted() { return interrupted.load(); }

void CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

Progress::Progress(std::string label, size_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::Update(size_t done) {
  const int percent = total_ == 0 ? 100 : static_cast<int>(done * 100 / total_);
  if (!terminal_ || percent == shown_) return;
  shown_ = percent;
  constexpr int kWidth = 30;
  const int filled = percent * kWidth / 100;
  (void)WriteAll(STDERR_FILENO, fmt::format("\r{} [{}{}] {:3}%", label_, std::string(filled, '#'),
                                            std::string(kWidth - filled, '.'), percent));
}

Progress::~Progress() {
  if (terminal_ && shown_ >= 0) (void)WriteAll(STDERR_FILENO, "\r\x1b[K");
}

}  // namespace hognose::cli
