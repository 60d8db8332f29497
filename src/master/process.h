// Starting one process with its own session, log file and death signal.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::master {

struct ProcessOptions {
  // argv[0] is a path, or a name found in the PATH of `environment`.
  std::vector<std::string> argv;
  // KEY=VALUE; of two with one key the later wins.
  std::vector<std::string> environment;
  // Standard output and error are appended to it; empty = /dev/null.
  std::string log_file;
};

struct Process {
  pid_t pid = 0;
  // Becomes readable when the process ends.
  Fd pidfd;
};

// Forks and executes. The child leads a new session, has default signals, no
// descriptors but 0-2, and gets SIGKILL when the calling *thread* ends. It has
// executed its program when this returns. NOT_FOUND: no such program;
// INVALID_ARGUMENT: it cannot be executed.
absl::StatusOr<Process> StartProcess(const ProcessOptions& options);

// A descriptor that becomes readable when process `pid` ends; empty (errno set)
// when there is no such process.
Fd OpenPidfd(pid_t pid);

}  // namespace elasticdl::master
