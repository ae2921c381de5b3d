// Starts a program as a shell would and waits for it: streams, limits, signals, exit code.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace hognose::cli_test {

struct Outcome {
  int code = -1;         // the exit code, or minus the signal that ended it
  bool hung = false;     // it was still running at the time limit
  std::string out, err;  // what it wrote
};

struct Request {
  std::string program = HOGNOSE_EXECUTABLE;
  std::vector<std::string> args = {};
  std::string folder = {};  // working folder; empty: ours
  // NAME=VALUE in place of ours; nothing of LANG and the like comes in by itself.
  std::vector<std::string> environment = {};

  std::string input = {};                        // standard input, then its end
  int input_fd = -1;                             // standard input is this descriptor instead
  bool input_closed = false;                     // no standard input at all
  std::string output_path = {};                  // standard output is this file instead of a pipe
  bool output_closed = false;                    // no standard output at all
  size_t leave_after = static_cast<size_t>(-1);  // the reader of the pipe leaves after these bytes
  bool terminal = false;                         // standard error is a terminal

  rlim_t max_file_bytes = RLIM_INFINITY;  // a disk that is full from there on
  bool obey_permissions = false;          // even root can't write where the mode forbids it
  // Asked after each output and every other millisecond; the first true sends the signal.
  std::function<bool(const Outcome&)> interrupt = {};
  int interrupt_signal = SIGINT;
};

Outcome Launch(const Request& request);

// False in a root without /dev/pts (a bare chroot): tests of what a terminal shows return at once
// then, after one line that says so.
bool HaveTerminals();

}  // namespace hognose::cli_test
