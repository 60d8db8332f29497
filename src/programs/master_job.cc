#include "master_job.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/slurm.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/master.h"
#include "master_options.h"
#include "program.h"

namespace elasticdl::programs {
namespace {

// A given token replaces the one that was made for the job: clients look for it
// in the folder.
absl::StatusOr<std::string> SetToken(const flags::JobFlags& flags,
                                     const jobdir::JobDir& dir) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string given,
                             GivenToken(flags.token_file));
  if (!given.empty()) ELASTICDL_RETURN_IF_ERROR(dir.WriteToken(given));
  if (given.empty() && flags.pod_backend == "none") {
    LogInfo("workers in other containers or on other machines need the token: ",
            "set ELASTICDL_TOKEN for both, or --token_file");
  }
  return dir.ReadToken();
}

// What a client has passed on that starts this program again when it is killed.
// The pods do not get it.
std::optional<master::ParentOptions> TakeParent() {
  master::ParentOptions parent;
  const bool given = absl::SimpleAtoi(flags::GetEnv(jobdir::kEndedFdVariable),
                                      &parent.ended_fd);
  const std::vector<std::string> restart =
      absl::StrSplit(flags::GetEnv(jobdir::kRestartVariable), ' ');
  unsetenv(jobdir::kEndedFdVariable);
  unsetenv(jobdir::kRestartVariable);
  if (!given || fcntl(parent.ended_fd, F_SETFD, FD_CLOEXEC) != 0) {
    return std::nullopt;
  }
  parent.pid = getppid();
  if (restart.size() != 2 || !absl::SimpleAtoi(restart[0], &parent.restarts) ||
      !absl::SimpleAtoi(restart[1], &parent.signal)) {
    parent.restarts = 0;
  }
  return parent;
}

absl::StatusOr<int> RunJob(const flags::JobFlags& flags,
                           std::vector<std::string> shown_flags,
                           const std::optional<master::ParentOptions>& parent,
                           const jobdir::JobDir& dir,
                           process::SignalWatcher& signals) {
  ELASTICDL_ASSIGN_OR_RETURN(
      master::MasterOptions options,
      MakeMasterOptions(flags, ExecutablePath(), flags::Environment()));
  options.parent = parent;
  options.job_dir = dir.path();
  options.shown_flags = std::move(shown_flags);
  options.terminal = flags::GetEnv("TERM");
  ELASTICDL_ASSIGN_OR_RETURN(options.token, SetToken(flags, dir));
  options.worker_argv.push_back("--token_file=" + dir.TokenFile());
  options.ps_argv.push_back("--token_file=" + dir.TokenFile());
  if (options.num_ps_pods > 0) {
    // Several jobs may share a folder that was given.
    options.ps_log = flags.ps_log.empty()
                         ? dir.PsLogDir()
                         : JoinPath(flags.ps_log, flags.job_name);
  }
  // What Slurm suspends must be saved somewhere.
  const bool on_slurm = options.slurm.has_value();
  if (options.job.checkpoint_dir().empty() &&
      (options.job.checkpoint_steps() > 0 || on_slurm)) {
    options.job.set_checkpoint_dir(JoinPath(dir.path(), "checkpoints"));
  }
  if (options.job.prediction_output_dir().empty()) {
    options.job.set_prediction_output_dir(JoinPath(dir.path(), "predictions"));
  }
  const bool in_cluster = options.cluster.has_value();
  ELASTICDL_ASSIGN_OR_RETURN(const auto master,
                             master::Master::Create(std::move(options)));
  signals.Start([&](int signal) {
    if (in_cluster && signal == SIGTERM && master->ProbesFail()) {
      LogError("the liveness probe fails: ending, to be started again");
      // Not in order: the loop may hang. The next master has the journal, and
      // the workers wait for it.
      std::fflush(nullptr);
      _exit(1);
    }
    if (on_slurm && signal == SIGTERM) {
      master->Suspend("Slurm ends the allocation");
    } else {
      master->Stop(signal == SIGINT ? "interrupted" : "terminated");
    }
  });
  return master->Run();
}

// A master before this one may have left a journal to go on with.
absl::StatusOr<jobdir::JobLock> Lock(const flags::JobFlags& flags,
                                     const jobdir::JobDir& dir) {
  if (flags.pod_backend != "slurm") {
    return LockJob(dir, flags.master_timeout > 0, /*owner=*/"");
  }
  const auto allocation = flags::FindSlurmAllocation();
  if (!allocation.has_value()) return LockJob(dir, /*go_on=*/false, "");
  return LockJob(dir, allocation->restarts > 0, allocation->Owner());
}

}  // namespace

absl::StatusOr<int> RunMaster(const flags::JobFlags& flags,
                              std::vector<std::string> shown_flags,
                              process::SignalWatcher& signals,
                              std::unique_ptr<LogCopier>& copier) {
  // The client has this program write to the job's folder, from where the line
  // is copied; by hand, it goes to a terminal.
  ELASTICDL_RETURN_IF_ERROR(InitLogFromFlags(
      "master", flags, StartedByHand() ? flags.log_file_path : ""));
  const jobdir::JobDir dir(
      flags.state_dir.empty() ? flags::DefaultStateDir() : flags.state_dir,
      flags.job_name);
  ELASTICDL_ASSIGN_OR_RETURN(const jobdir::JobLock lock, Lock(flags, dir));
  const std::optional<master::ParentOptions> parent = TakeParent();
  if (!flags.log_file_path.empty()) {
    // The master before has copied a part of what is there.
    const bool go_on = parent.has_value() && parent->restarts > 0;
    ELASTICDL_ASSIGN_OR_RETURN(
        copier, LogCopier::Start(dir.LogsDir(), flags.log_file_path,
                                 JoinPath(dir.path(), "copied"), go_on));
  }
  absl::StatusOr<int> exit_code =
      RunJob(flags, std::move(shown_flags), parent, dir, signals);
  if (!exit_code.ok()) {
    master::RecordRefusedJob(dir.path(), flags.event_log, exit_code.status(),
                             MakeClusterOptions(flags));
  }
  return exit_code;
}

}  // namespace elasticdl::programs
