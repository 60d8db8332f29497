// Starting one process with its own session, log file and death signal.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
  // Descriptors above 2 that the child gets under the same number.
  std::vector<int> keep_fds;
  // SIGKILL it when the thread that started it ends.
  bool die_with_parent = true;
};

struct Process {
  pid_t pid = 0;
  // Becomes readable when the process ends.
  Fd pidfd;
};

// Forks and executes. The child leads a new session, has default signals and no
// descriptors but 0-2 and keep_fds. With die_with_parent it gets SIGKILL when
// the calling *thread* ends. It has executed its program when this returns.
// NOT_FOUND: no such program; INVALID_ARGUMENT: it cannot be executed.
absl::StatusOr<Process> Start(const Options& options);

// A descriptor that becomes readable when process `pid` ends; empty (errno set)
// when there is no such process.
Fd OpenPidfd(pid_t pid);

}  // namespace elasticdl::process
