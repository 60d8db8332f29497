// The first process of a pod: starts the program of the pod, and when that is
// killed closes its connections at once.
//
// The kernel frees the memory of a killed process before it closes its sockets:
// 5 ms later for 50 MB, more than 100 ms later for 1.5 GB. Others in the same
// pod could watch the life sign of the process (elasticdl/common/life_sign.h),
// but those whose connections break run elsewhere. The sentinel has the life
// sign from the start. When it shows a death, the sentinel takes copies of the
// dying process's sockets (pidfd_getfd) and shuts them down, so that the master
// and the members of its world see what they would have seen later anyway.
// There is no message of its own, so nothing has to be authenticated or fenced.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace elasticdl::process {

// The variable with the number of the descriptor for AdoptLifeSign.
inline constexpr char kLifeSignVariable[] = "ELASTICDL_LIFE_SIGN_FD";

// Runs `argv` until it ends, then returns its exit code, or 128 + the number of
// the signal that ended it. Forwards SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1
// and SIGUSR2 to it, and waits for all other processes that become its
// children, as the first process of a pod must. `argv` is killed when the
// caller ends. Errors: `argv` could not be started.
//
// Call it in main, before any thread starts: it blocks these signals.
absl::StatusOr<int> RunSentinel(const std::vector<std::string>& argv);

// Shuts down all TCP connections of a process, listening sockets included, also
// while it dies. Their descriptors stay open in it. Returns how many there
// were. PERMISSION_DENIED: the system does not allow it (it needs what a
// debugger needs); UNIMPLEMENTED: the kernel is older than Linux 5.6.
absl::StatusOr<int> ShutDownConnections(pid_t pid);

}  // namespace elasticdl::process
