// Runs a master as a child of the client and leaves no process behind.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"
#include "elasticdl/jobdir.h"
#include "local/relaunch.h"

namespace elasticdl::cli {

struct LaunchOptions {
  // The program elasticdl-master.
  std::string program;
  std::vector<std::string> args;
  // KEY=VALUE.
  std::vector<std::string> environment;
  // Return once the master listens, and let it run.
  bool detach = false;
  // The job runs in a Slurm allocation.
  bool on_slurm = false;
  // Start the master again when it is killed; its pods belong to this process
  // and wait for it. Not with `detach`.
  bool relaunch = false;
  RelaunchRule::Options relaunch_rule;
  // The master's log consists of lines for people, not of JSON.
  bool plain_log = true;
};

// A port of the loopback that nobody gets who asks for any: only those who ask
// for this very one, as long as the socket is open.
struct ReservedPort {
  Fd socket;
  int port = 0;
};
absl::StatusOr<ReservedPort> ReservePort();

// Starts the master with the job's lock, waits for it and returns its exit code
// (128 + n after signal n that it did not survive; 1 when it cannot be
// started). SIGINT and SIGTERM are passed on once, SIGHUP as SIGTERM; a second
// one kills it. (On Slurm SIGTERM is passed on each time, the others once as
// SIGINT.) When it has ended, whatever it left behind is killed too; if this
// process is killed, the master and its pods end with it. Call from the main
// thread.
int LaunchMaster(const LaunchOptions& options, const jobdir::JobDir& dir,
                 const jobdir::JobLock& lock);

}  // namespace elasticdl::cli
