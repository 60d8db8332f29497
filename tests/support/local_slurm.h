// A Slurm of one node, this machine, or of several that seem to be others, in a
// folder of its own: munged, slurmctld and slurmd of Debian's packages, on the
// loopback only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace elasticdl::test {

// Thread-compatible. The destructor ends all jobs, then the daemons.
class LocalSlurm {
 public:
  struct Options {
    // Of each node; more than the machine has is fine.
    int cpus = 8;
    int gpus = 0;
    int threads_per_core = 1;
    // The first is this machine. The others, node2 and so on, have names and
    // addresses of their own, which takes root.
    int nodes = 1;
    // A shell script that runs before each task, if not empty; of what it says,
    // lines that begin with "print " go to the task's output.
    std::string task_prolog;
  };

  // NOT_FOUND: a package or a right is missing; its message names it.
  static absl::StatusOr<std::unique_ptr<LocalSlurm>> Start(
      const Options& options);
  static absl::StatusOr<std::unique_ptr<LocalSlurm>> Start() {
    return Start(Options());
  }
  ~LocalSlurm();

  // Runs a command of Slurm and returns its standard output; an error has what
  // it said.
  absl::StatusOr<std::string> Run(const std::vector<std::string>& argv) const;
  // A new allocation of so many tasks; its job id. It lasts until the end.
  absl::StatusOr<std::string> Allocate(int tasks) const;

  // A node other than this machine loses its power: its daemon and all its
  // processes are killed, and Slurm hears that it is down.
  absl::Status LoseNode(const std::string& name);

  // Waits until the controller has logged something with this text in it, from
  // its start on.
  bool WaitForLog(const std::string& text) const;

  // SLURM_CONF=… for those who talk to it.
  const std::string& variable() const { return variable_; }
  // What the daemons said.
  std::string Logs() const;

 private:
  LocalSlurm() = default;
  absl::Status WriteConfig(const Options& options);
  absl::Status StartDaemons();
  // The daemon of a node that is not this machine.
  std::unique_ptr<ChildProcess> OtherNode(const std::string& name) const;
  std::unique_ptr<ChildProcess> Daemon(const std::string& name,
                                       std::vector<std::string> argv) const;

  TempDir dir_;
  std::string variable_;
  std::string host_;
  std::string user_;
  // Besides this machine; in the order of their daemons.
  std::vector<std::string> others_;
  std::unique_ptr<ChildProcess> munged_;
  std::unique_ptr<ChildProcess> slurmctld_;
  std::unique_ptr<ChildProcess> slurmd_;
  std::vector<std::unique_ptr<ChildProcess>> other_slurmds_;
};

}  // namespace elasticdl::test
