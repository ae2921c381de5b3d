// The log of a training run: one JSON object a line,
//   {"step": 0, "loss": 4.2, "grad_norm": 1.1, "lr": 0.001, "tokens_per_second": 812.5,
//    "memory_bytes": 123456, "scale": 1}
// A number that isn't finite is null, since JSON has none for it.
//
// A run that was killed may have logged steps that its checkpoint doesn't have, and may have cut
// its last line short: resuming drops both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace hognose::train {

struct LogEntry {
  size_t step = 0;
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  double tokens_per_second = 0;
  uint64_t memory_bytes = 0;
  double scale = 1;  // of the loss, in mixed precision
};

class TrainLog {
 public:
  // A new run: the file is emptied.
  static core::Result<TrainLog> Create(const std::string& path);
  // A run that goes on at `step`: entries of earlier steps are kept, and returned in `kept` if that
  // is given; without a file this is Create. Lines that are no entries are an error, but for a last
  // one without an end.
  static core::Result<TrainLog> Resume(const std::string& path, size_t step,
                                       std::vector<LogEntry>* kept = nullptr);
  TrainLog(TrainLog&& other) noexcept;
  TrainLog& operator=(TrainLog&& other) noexcept;
  ~TrainLog();

  // The line is with the system when this returns: a killed run loses none of its lines.
  core::Status Write(const LogEntry& entry);

 private:
  TrainLog(std::string path, int fd);

  std::string path_;
  int fd_ = -1;
};

std::string ToLine(const LogEntry& entry);  // with the end of the line
core::Result<LogEntry> ParseLogLine(std::string_view line, const std::string& where);

}  // namespace hognose::train
