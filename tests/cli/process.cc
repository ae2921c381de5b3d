#include "tests/cli/process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>

namespace hognose::cli_test {
namespace {

// Far beyond what any test needs, sanitizers and a busy machine included.
constexpr std::chrono::seconds kLimit{300};

void Check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
}

// One end of a stream of ours.
class End {
 public:
  explicit End(int fd = -1) : fd_(fd) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() { Close(); }
  int fd() const { return fd_; }
  void Set(int fd) {
    Close();
    fd_ = fd;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

void Pipe(End& read_end, End& write_end) {
  int ends[2];
  Check(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  read_end.Set(ends[0]);
  write_end.Set(ends[1]);
}

bool OpenTerminal(End& ours) {
  ours.Set(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  return ours.fd() >= 0 && grantpt(ours.fd()) == 0 && unlockpt(ours.fd()) == 0;
}

// A pair of terminal ends that pass bytes on as they are.
void Terminal(End& ours, End& theirs) {
  Check(OpenTerminal(ours), "posix_openpt");
  theirs.Set(open(ptsname(ours.fd()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  Check(theirs.fd() >= 0, "open of a terminal");
}

struct Streams {
  End input, output, errors;                    // ours
  End child_input, child_output, child_errors;  // the child's
};

void Open(const Request& r, Streams& s) {
  if (r.input_fd < 0 && !r.input_closed) Pipe(s.child_input, s.input);
  if (!r.output_path.empty()) {
    s.child_output.Set(open(r.output_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    Check(s.child_output.fd() >= 0, "open of the output");
  } else if (!r.output_closed) {
    Pipe(s.output, s.child_output);
  }
  if (r.terminal) {
    Terminal(s.errors, s.child_errors);
  } else {
    Pipe(s.errors, s.child_errors);
  }
}

// Between fork and exec: only what is safe there.
bool Prepare(const Request& r, const Streams& s) {
  const int input = r.input_fd >= 0 ? r.input_fd : s.child_input.fd();
  if (r.input_closed) close(STDIN_FILENO);
  if (!r.input_closed && dup2(input, STDIN_FILENO) < 0) return false;
  if (r.output_closed) close(STDOUT_FILENO);
  if (!r.output_closed && dup2(s.child_output.fd(), STDOUT_FILENO) < 0) return false;
  if (dup2(s.child_errors.fd(), STDERR_FILENO) < 0) return false;
  if (!r.folder.empty() && chdir(r.folder.c_str()) != 0) return false;
  const rlimit limit = {r.max_file_bytes, r.max_file_bytes};
  if (r.max_file_bytes != RLIM_INFINITY && setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
  if (r.obey_permissions && geteuid() == 0) {
    return prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0;
  }
  return true;
}

pid_t Start(const Request& r, const Streams& s) {
  std::vector<char*> argv = {const_cast<char*>(r.program.c_str())};
  for (const auto& arg : r.args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (const auto& entry : r.environment) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child == 0) {
    for (const int signal_number : {SIGINT, SIGPIPE, SIGXFSZ}) signal(signal_number, SIG_DFL);
    if (Prepare(r, s)) execve(argv[0], argv.data(), environment.data());
    _exit(126);
  }
  return child;
}

// Reads what is there. False at the end (a terminal reports it as an error).
bool Read(int fd, std::string* text) {
  char buffer[1 << 16];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n < 0 && errno == EINTR) return true;
  if (n > 0) text->append(buffer, static_cast<size_t>(n));
  return n > 0;
}

// Feeds and drains the streams until all are closed or the time is up.
void Talk(const Request& r, pid_t child, Streams& s, Outcome* outcome) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  size_t sent = 0;
  bool interrupted = false;
  while (s.output.fd() >= 0 || s.errors.fd() >= 0) {
    if (sent == r.input.size()) s.input.Close();
    pollfd fds[] = {
        {s.input.fd(), POLLOUT, 0}, {s.output.fd(), POLLIN, 0}, {s.errors.fd(), POLLIN, 0}};
    poll(fds, 3, r.interrupt ? 2 : 100);
    if (fds[0].revents != 0) {
      const ssize_t n = write(s.input.fd(), r.input.data() + sent, r.input.size() - sent);
      if (n > 0) sent += static_cast<size_t>(n);
      if (n < 0 && errno != EAGAIN && errno != EINTR) sent = r.input.size();  // nobody reads it
    }
    if (fds[1].revents != 0 && !Read(s.output.fd(), &outcome->out)) s.output.Close();
    if (fds[2].revents != 0 && !Read(s.errors.fd(), &outcome->err)) s.errors.Close();
    if (outcome->out.size() >= r.leave_after) s.output.Close();
    if (!interrupted && r.interrupt && r.interrupt(*outcome)) {
      interrupted = true;
      kill(child, r.interrupt_signal);
    }
    if (std::chrono::steady_clock::now() > end) {
      outcome->hung = true;
      kill(child, SIGKILL);
      return;
    }
  }
}

}  // namespace

Outcome Launch(const Request& request) {
  Streams streams;
  Open(request, streams);
  if (streams.input.fd() >= 0) fcntl(streams.input.fd(), F_SETFL, O_NONBLOCK);
  void (*const old_handler)(int) = signal(SIGPIPE, SIG_IGN);  // the child may not read its input
  const pid_t child = Start(request, streams);
  streams.child_input.Close();
  streams.child_output.Close();
  streams.child_errors.Close();
  Outcome outcome;
  Talk(request, child, streams, &outcome);
  streams.input.Close();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  signal(SIGPIPE, old_handler);
  return outcome;
}

bool HaveTerminals() {
  End end;
  if (OpenTerminal(end)) return true;
  std::fprintf(stderr, "no /dev/pts here: not checked\n");
  return false;
}

}  // namespace hognose::cli_test
