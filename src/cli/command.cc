#include "cli/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/options.h"
#include "io/file.h"
#include "io/json.h"

namespace hognose::cli {
namespace {

// Process-wide by nature: what standard output and Ctrl-C have told so far.
std::atomic<bool> interrupted{false};
std::atomic<int> output_error{0};

// A descriptor that another program left non-blocking is waited for.
bool Again(int fd, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
  pollfd wait = {fd, events, 0};
  (void)poll(&wait, 1, -1);
  return true;
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && Again(fd, POLLOUT)) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// The folder of the executable, symbolic links resolved; empty if the system doesn't tell.
std::filesystem::path ExecutableFolder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n > 0 && n < static_cast<ssize_t>(sizeof(path))) {
    return std::filesystem::path(std::string(path, static_cast<size_t>(n))).parent_path();
  }
  // Without /proc: the name that the kernel was given, relative to where we started.
  const auto* name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (name == nullptr || realpath(name, path) == nullptr) return {};
  return std::filesystem::path(path).parent_path();
}

}  // namespace

void AddCommon(CLI::App& app, CommonOptions& options) {
  AddInteger(app, "-t,--threads", &options.threads, 1, 1024, "Threads (default: physical cores)");
  AddFlag(app, "--pin", &options.pin, "Keep each worker thread on a processor of its own");
  AddFlag(app, "--json", &options.json, "Machine-readable output on standard output");
  AddFlag(app, "--strict", &options.strict, "Unknown tensors are an error");
}

runtime::LoadOptions LoadOptionsOf(const CommonOptions& options) {
  return {.threads = options.threads.value_or(0), .pin = options.pin, .strict = options.strict};
}

void AddModel(CLI::App& app, std::string& model) {
  AddPath(app, "MODEL", &model,
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
                                                              bool tokenizer,
                                                              const std::string& quantize,
                                                              const std::string& adapter) {
  HOGNOSE_ASSIGN(const std::string folder, ModelPath(path));
  runtime::LoadOptions load = LoadOptionsOf(options);
  load.tokenizer = tokenizer;
  load.adapter = adapter;
  if (!quantize.empty()) {
    const bool int8 = quantize == "int8";
    load.quantize = {int8 ? codecs::Encoding::kInt8 : codecs::Encoding::kInt4};
  }
  HOGNOSE_ASSIGN(auto model, runtime::Model::Load(folder, load));
  for (const auto& warning : model->warnings) Note(warning);
  return model;
}

size_t StateBytes(const runtime::Model& model) {
  size_t floats = 0;
  for (const auto& s : model.lm.state_shapes()) floats += s.elements();
  return floats * sizeof(float);
}

// The descriptor itself is read: /dev/stdin can't be opened where it is a socket or another user's,
// and would begin a file anew.
core::Result<size_t> ReadSome(std::span<char> bytes) {
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n >= 0) return static_cast<size_t>(n);
    if (!Interrupted() && Again(STDIN_FILENO, POLLIN)) continue;
    return core::Status::Failed(fmt::format("standard input: {}", std::strerror(errno)));
  }
}

core::Result<std::string> ReadStandardInput() {
  constexpr size_t kLimit = size_t{1} << 32;
  std::string bytes;
  size_t size = 0;
  for (;;) {
    bytes.resize(std::max(2 * size, size_t{1} << 16));
    HOGNOSE_ASSIGN(const size_t n, ReadSome(std::span(bytes).subspan(size)));
    if (n == 0) break;
    size += n;
    if (size > kLimit) {
      return core::Status::Failed(
          fmt::format("standard input: got more than {} bytes, want at most that", kLimit));
    }
  }
  bytes.resize(size);
  return bytes;
}

core::Result<std::string> ReadInput(const std::string& path) {
  return path == "-" ? ReadStandardInput() : io::ReadFile(path);
}

std::string InputName(const std::string& path) { return path == "-" ? "standard input" : path; }

bool Print(std::string_view text) {
  if (output_error.load() != 0) return false;
  if (WriteAll(STDOUT_FILENO, text)) return true;
  output_error.store(errno);
  return false;
}

bool OutputOpen() { return output_error.load() == 0; }

core::Status OutputStatus() {
  const int error = output_error.load();
  if (error == 0 || error == EPIPE) return {};
  return core::Status::Failed(fmt::format("standard output: {}", std::strerror(error)));
}

bool PrintJson(const core::Value& value) { return Print(io::ToJson(value) + "\n"); }

void Note(std::string_view line) {
  std::string text;
  for (const char c : line) {  // names from files and arguments may hold anything
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  (void)WriteAll(STDERR_FILENO, text + "\n");  // nobody is left to be told
}

core::Status CheckWritable(const std::string& path) {
  struct stat info = {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return core::Status::Failed(fmt::format("{}: got a folder, want a file to write", path));
  }
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder.push_back('.');
  const std::string& place = exists && !S_ISREG(info.st_mode) ? path : folder;
  if (faccessat(AT_FDCWD, place.c_str(), W_OK, AT_EACCESS) == 0) return {};
  return core::Status::Failed(fmt::format("{}: could not write: {}", path, std::strerror(errno)));
}

void EndOnInterrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { _exit(kExitInterrupted); };
  sigaction(SIGINT, &action, nullptr);
}

void CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    if (interrupted.exchange(true)) _exit(kExitInterrupted);
  };
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupted.load(); }

Progress::Progress(std::string label, size_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::Update(size_t done, const std::string& text) {
  const int percent = total_ == 0 ? 100 : static_cast<int>(done * 100 / total_);
  if (!terminal_ || (percent == shown_ && text.empty())) return;
  shown_ = percent;
  constexpr int kWidth = 30;
  const int filled = percent * kWidth / 100;
  (void)WriteAll(STDERR_FILENO,
                 fmt::format("\r{} [{}{}] {:3}% {}\x1b[K", label_, std::string(filled, '#'),
                             std::string(kWidth - filled, '.'), percent, text));
}

void Progress::Clear() {
  if (terminal_ && shown_ >= 0) (void)WriteAll(STDERR_FILENO, "\r\x1b[K");
  shown_ = -1;
}

Progress::~Progress() { Clear(); }

}  // namespace hognose::cli
