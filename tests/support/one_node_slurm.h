// A Slurm of one node, this machine, in a folder of its own: munged, slurmctld
// and slurmd of Debian's packages, on the loopback only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "support/child_process.h"
#include "support/temp_dir.h"

namespace elasticdl::test {

// Thread-compatible. The destructor ends all jobs, then the daemons.
class OneNodeSlurm {
 public:
  struct Options {
    // More than the machine has is fine.
    int cpus = 8;
    int gpus = 0;
  };

  // NOT_FOUND: a package is missing; its message names it.
  static absl::StatusOr<std::unique_ptr<OneNodeSlurm>> Start(
      const Options& options);
  static absl::StatusOr<std::unique_ptr<OneNodeSlurm>> Start() {
    return Start(Options());
  }
  ~OneNodeSlurm();

  // Runs a command of Slurm and returns its standard output; an error has what
  // it said.
  absl::StatusOr<std::string> Run(const std::vector<std::string>& argv) const;
  // A new allocation of so many tasks; its job id. It lasts until the end.
  absl::StatusOr<std::string> Allocate(int tasks) const;

  // Waits until the controller has logged something with this text in it, from
  // its start on.
  bool WaitForLog(const std::string& text) const;

  // SLURM_CONF=… for those who talk to it.
  const std::string& variable() const { return variable_; }
  // What the daemons said.
  std::string Logs() const;

 private:
  OneNodeSlurm() = default;
  absl::Status WriteConfig(const Options& options);
  absl::Status StartDaemons();
  std::unique_ptr<ChildProcess> Daemon(const std::string& name,
                                       std::vector<std::string> argv) const;

  TempDir dir_;
  std::string variable_;
  std::string host_;
  std::string user_;
  int cpus_ = 0;
  std::unique_ptr<ChildProcess> munged_;
  std::unique_ptr<ChildProcess> slurmctld_;
  std::unique_ptr<ChildProcess> slurmd_;
};

}  // namespace elasticdl::test
