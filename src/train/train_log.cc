#include "train/train_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/value.h"
#include "io/file.h"
#include "io/json.h"

namespace hognose::train {
namespace {

using core::Result;
using core::Status;
using core::Value;

Status CannotWrite(const std::string& path, int error) {
  return Status::Failed(
      fmt::format("{}: could not write: {}", path, std::generic_category().message(error)));
}

Value Number(double x) { return std::isfinite(x) ? Value(x) : Value(); }

// A number or null; what isn't there is null.
double Read(const Value& line, std::string_view key) {
  double x = std::numeric_limits<double>::quiet_NaN();
  if (const Value* value = line.Find(key)) value->AsDouble(&x);
  return x;
}

// The entries before `step`, and their lines as they are.
Status Keep(std::string_view text, const std::string& path, size_t step, std::string* lines,
            std::vector<LogEntry>* entries) {
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;  // cut short
    const std::string_view line = text.substr(at, end - at);
    HOGNOSE_ASSIGN(const LogEntry entry,
                   ParseLogLine(line, fmt::format("{}: line {}", path, number)));
    if (entry.step < step) {
      lines->append(text, at, end + 1 - at);
      entries->push_back(entry);
    }
    at = end + 1;
  }
  return {};
}

}  // namespace

std::string ToLine(const LogEntry& entry) {
  return io::ToJson(Value::Object{{"step", entry.step},
                                  {"loss", Number(entry.loss)},
                                  {"grad_norm", Number(entry.grad_norm)},
                                  {"lr", Number(entry.lr)},
                                  {"tokens_per_second", Number(entry.tokens_per_second)},
                                  {"memory_bytes", entry.memory_bytes},
                                  {"scale", Number(entry.scale)}}) +
         "\n";
}

Result<LogEntry> ParseLogLine(std::string_view line, const std::string& where) {
  const auto value = io::ParseJson(line, where);
  const Value* step = value.ok() ? value->Find("step") : nullptr;
  if (step == nullptr || step->AsInt() == nullptr || *step->AsInt() < 0) {
    return Status::Failed(where +
                          ": got no entry of a training log, want a JSON object with an "
                          "integer \"step\"");
  }
  LogEntry entry = {.step = static_cast<size_t>(*step->AsInt()),
                    .loss = Read(*value, "loss"),
                    .grad_norm = Read(*value, "grad_norm"),
                    .lr = Read(*value, "lr"),
                    .tokens_per_second = Read(*value, "tokens_per_second"),
                    .memory_bytes = 0,
                    .scale = Read(*value, "scale")};
  const Value* memory = value->Find("memory_bytes");
  if (memory != nullptr && memory->AsInt() != nullptr && *memory->AsInt() >= 0) {
    entry.memory_bytes = static_cast<uint64_t>(*memory->AsInt());
  }
  return entry;
}

TrainLog::TrainLog(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

TrainLog::TrainLog(TrainLog&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

TrainLog& TrainLog::operator=(TrainLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

TrainLog::~TrainLog() {
  if (fd_ >= 0) close(fd_);
}

Result<TrainLog> TrainLog::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return CannotWrite(path, errno);
  return TrainLog(path, fd);
}

Result<TrainLog> TrainLog::Resume(const std::string& path, size_t step,
                                  std::vector<LogEntry>* kept) {
  struct stat info = {};
  // A pipe or a terminal keeps no lines.
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return Create(path);
  HOGNOSE_ASSIGN(const std::string text, io::ReadFile(path));
  std::string lines;
  std::vector<LogEntry> entries;
  HOGNOSE_TRY(Keep(text, path, step, &lines, &entries));
  if (lines.size() != text.size()) HOGNOSE_TRY(io::WriteFile(path, lines));
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return CannotWrite(path, errno);
  if (kept != nullptr) *kept = std::move(entries);
  return TrainLog(path, fd);
}

Status TrainLog::Write(const LogEntry& entry) {
  HOGNOSE_CHECK(fd_ >= 0);
  const std::string line = ToLine(entry);
  for (size_t at = 0; at < line.size();) {
    const ssize_t put = write(fd_, line.data() + at, line.size() - at);
    if (put < 0 && errno != EINTR) return CannotWrite(path_, errno);
    if (put > 0) at += static_cast<size_t>(put);
  }
  return {};
}

}  // namespace hognose::train
