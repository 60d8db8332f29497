// Starting one process with its own session, log file and death signal, and
// running one to its end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/file.h"

namespace elasticdl::process {

struct Options {
  // argv[0] is a path, or a name found in the PATH of `environment`.
  std::vector<std::string> argv;
  // KEY=VALUE; of two with one key the later wins.
  std::vector<std::string> environment;
  // Standard output and error are appended to it; empty = /dev/null.
  std::string log_file;
  // Standard output goes to this descriptor instead, unless it is -1.
  int output_fd = -1;
  // Standard error likewise.
  int error_fd = -1;
  // Standard input comes from this descriptor; -1 = /dev/null.
  int input_fd = -1;
  // Where it works; empty = where this process does. Not for a fork server.
  std::string folder;
  // Descriptors above 2 that the child gets under the same number.
  std::vector<int> keep_fds;
  // Signals that are blocked when it begins, so that one which comes before it
  // is ready waits for it.
  std::vector<int> blocked_signals;
  // SIGKILL it when the thread that started it ends.
  bool die_with_parent = true;
  // 0: it becomes a child of this process. Else of the nearest child subreaper
  // above (prctl(2)), which has this number: it dies with that one, and only
  // that one can wait for it.
  pid_t parent = 0;
  // False: only a group of its own, in the session of this process. Where the
  // kernel shares the cores among sessions first (autogroups), a thread that is
  // woken up waits for the turns of other sessions, whatever it asks for
  // (elasticdl/common/swift.h).
  bool own_session = true;
};

struct Process {
  pid_t pid = 0;
  // Becomes readable when the process ends.
  Fd pidfd;
};

// Forks and executes. The child leads a new group of processes and, unless the
// options say otherwise, a new session; it has default signals and no
// descriptors but 0-2 and keep_fds. With die_with_parent it gets SIGKILL when
// the calling *thread* ends. It has executed its program when this returns.
// NOT_FOUND: no such program; INVALID_ARGUMENT: it cannot be executed.
absl::StatusOr<Process> Start(const Options& options);

// The variables of this process, KEY=VALUE.
std::vector<std::string> InheritedEnvironment();

struct RunOptions {
  std::vector<std::string> argv;
  std::vector<std::string> environment = InheritedEnvironment();
  std::string folder;
  // What it reads from standard input.
  std::string input;
  // After it, the process and all that it started are killed.
  absl::Duration timeout = absl::Minutes(10);
  // So they are when this descriptor becomes readable, unless it is -1.
  int cancel_fd = -1;
};

struct RunResult {
  // Exit code, or 128 + the number of the signal that ended it.
  int code = 0;
  std::string output;
  std::string error;

  // "exit code 1", "signal 9".
  std::string HowItEnded() const;
};

// Starts a process and waits for its end. Any amount of output fits. Errors of
// Start; DEADLINE_EXCEEDED with the end of what it said on standard error,
// CANCELLED.
absl::StatusOr<RunResult> Run(const RunOptions& options);

// The last `bytes` of a text without the blanks around it: what a program said
// at last, for a message.
std::string LastWords(absl::string_view text, size_t bytes);

// A descriptor that becomes readable when process `pid` ends; empty (errno set)
// when there is no such process.
Fd OpenPidfd(pid_t pid);

}  // namespace elasticdl::process
