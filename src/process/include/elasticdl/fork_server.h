// A process that has loaded its libraries once and forks other processes:
// loading libtorch is most of the start-up time of a worker (0.6 s of CPU), a
// fork takes milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/process.h"

namespace elasticdl::process {

// The caller's end. Only one thread may use it, and it must outlive the server.
//
// The processes become children of the caller, not of the server: they can be
// waited for, they get SIGKILL when the caller's main thread ends, and they do
// not depend on the server. For this the caller becomes a "child subreaper"
// (prctl(2)). With Options::parent they become children of one above instead.
class ForkServer {
 public:
  struct Answer {
    uint64_t request = 0;
    // Not OK: there is no process.
    absl::StatusOr<Process> process;
  };

  // Starts `program`, which calls ServeForks when --fork_server_fd=N is its
  // first argument. Does not wait until it is ready. `parent`: that of all
  // options it will be asked for.
  static absl::StatusOr<std::unique_ptr<ForkServer>> Start(
      const std::string& program, const std::vector<std::string>& environment,
      pid_t parent = 0);

  // Kills the server and waits for its end; its processes go on.
  ~ForkServer();

  // Asks for a process that runs options.argv (whose program is the server's)
  // as Start() would, with die_with_parent. Never blocks; the reply carries
  // `request`. An error: the request was not sent (the server is dead or too
  // slow; the environment is too large).
  absl::Status Ask(uint64_t request, const Options& options);

  // The next answer, if it has come. UNAVAILABLE: the server has ended, and
  // what it has not answered does not run and never will. Never blocks.
  absl::StatusOr<std::optional<Answer>> Next();

  // Becomes readable when Next has something new to say.
  int fd() const { return socket_.get(); }

  // Ends the server, so that Next tells what is left, then UNAVAILABLE.
  void Kill();

 private:
  ForkServer(Process server, Fd socket);

  const Process server_;
  const Fd socket_;
  bool reaped_ = false;
};

// Whether a program's first argument makes it a fork server, and its `fd`.
bool IsForkServer(const char* argument, int* fd);

// The server's end; called at the beginning of main, before any thread starts.
// Serves until the other end closes `fd`, then returns 0. In each new process
// it calls `run` with the arguments after the program's name and exits with
// what that returns. `argv` is main's: `ps` shows the new arguments there.
int ServeForks(int fd, char** argv,
               const std::function<int(const std::vector<std::string>&)>& run);

}  // namespace elasticdl::process
