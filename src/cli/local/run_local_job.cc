// Starts a job on this machine and prints how it ended.
#include "local/run_local_job.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/slurm.h"
#include "elasticdl/jobdir.h"
#include "local/client.h"
#include "local/launch.h"

namespace elasticdl::cli {
namespace {

// How long workers wait for a master that was killed: for all the tries to
// start it again.
constexpr char kMasterTimeout[] = "300";

// Enough to show an error and what led to it.
constexpr size_t kLastLogLines = 10;

int FailCommand(const std::string& command, const absl::Status& status) {
  std::fprintf(stderr, "elasticdl %s: %s\n", command.c_str(),
               std::string(status.message()).c_str());
  return 1;
}

std::string LastLines(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return "";
  std::vector<std::string> lines =
      absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (lines.size() > kLastLogLines) {
    lines.erase(lines.begin(), lines.end() - kLastLogLines);
  }
  return absl::StrJoin(lines, "\n");
}

void TellSuccess(const flags::JobFlags& flags, const jobdir::JobDir& dir) {
  if (!flags.output.empty()) {
    std::printf("model:       %s\n", flags.output.c_str());
  }
  // Without --checkpoint_steps a training saves at its end.
  if (!flags.checkpoint_dir.empty() &&
      absl::StartsWith(flags.JobType(), "training_")) {
    std::printf("checkpoints: %s\n", flags.checkpoint_dir.c_str());
  }
  // It exists only if something was written to it: a model's own processor may
  // write elsewhere.
  const std::string predictions = flags.prediction_output_dir.empty()
                                      ? JoinPath(dir.path(), "predictions")
                                      : flags.prediction_output_dir;
  if (!flags.prediction_data.empty() && IsDirectory(predictions)) {
    std::printf("predictions: %s\n", predictions.c_str());
  }
  std::printf("logs:        %s\n", dir.LogsDir().c_str());
}

void TellFailure(const std::string& command, int exit_code,
                 const jobdir::JobDir& dir) {
  const JobEnd end = ReadJobEnd(dir);
  if (!end.reason.empty()) {
    std::fprintf(stderr, "elasticdl %s: job %s %s: %s\n", command.c_str(),
                 dir.job_name().c_str(), end.state.c_str(), end.reason.c_str());
  } else {
    std::fprintf(
        stderr,
        "elasticdl %s: the master of job %s ended with exit code %d; the end "
        "of its log:\n%s\n",
        command.c_str(), dir.job_name().c_str(), exit_code,
        LastLines(dir.LogFile("master")).c_str());
  }
  std::fprintf(stderr, "logs: %s\n", dir.LogsDir().c_str());
}

void TellDetached(const jobdir::JobDir& dir) {
  std::printf(
      "job %s is running\n"
      "  elasticdl top --job_name=%s        (--url: its status page)\n"
      "  elasticdl logs --job_name=%s --follow\n"
      "  elasticdl stop --job_name=%s\n",
      dir.job_name().c_str(), dir.job_name().c_str(), dir.job_name().c_str(),
      dir.job_name().c_str());
}

// Ports of the master that stay the same when it is started again.
struct MasterPorts {
  ReservedPort rpc;
  ReservedPort http;
};

absl::StatusOr<MasterPorts> ReservePorts() {
  MasterPorts ports;
  ELASTICDL_ASSIGN_OR_RETURN(ports.rpc, ReservePort());
  ELASTICDL_ASSIGN_OR_RETURN(ports.http, ReservePort());
  return ports;
}

// Each of them needs seconds of a core to start, all at once.
void WarnOfManyWorkers(const std::string& command, int64_t workers) {
  constexpr int64_t kPerCore = 16;
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (workers <= kPerCore * cores) return;
  std::fprintf(stderr,
               "elasticdl %s: %s workers share %s of this machine: they start "
               "slowly, and may time out before they are ready\n",
               command.c_str(), absl::StrCat(workers).c_str(),
               cores == 1 ? "the one core"
                          : absl::StrCat("the ", cores, " cores").c_str());
}

}  // namespace

int RunLocalJob(const std::string& command, const flags::JobFlags& flags,
                const flags::FlagSet& set) {
  return RunLocalJob(command, flags, set,
                     flags::ProgramBeside("elasticdl-master"));
}

int RunLocalJob(const std::string& command, const flags::JobFlags& flags,
                const flags::FlagSet& set, const std::string& master_program) {
  const jobdir::JobDir dir(flags.state_dir, flags.job_name);
  const auto allocation = flags::FindSlurmAllocation();
  const std::string owner = allocation.has_value() ? allocation->Owner() : "";
  const absl::StatusOr<jobdir::JobLock> lock =
      allocation.has_value() && allocation->restarts > 0
          ? jobdir::JobLock::AcquireAgain(dir, owner)
          : jobdir::JobLock::Acquire(dir, owner);
  if (!lock.ok()) return FailCommand(command, lock.status());
  LaunchOptions launch;
  launch.on_slurm = allocation.has_value();
  if (!launch.on_slurm) WarnOfManyWorkers(command, flags.num_workers);
  launch.relaunch = !flags.detach && !launch.on_slurm &&
                    !flags.RunsJobCommand() &&
                    (flags.master_timeout > 0 || !set.IsSet("master_timeout"));
  absl::StatusOr<MasterPorts> ports = MasterPorts();
  if (launch.relaunch) ports = ReservePorts();
  if (!ports.ok()) return FailCommand(command, ports.status());
  flags::KeyValues more = {
      {"job_name", flags.job_name},
      {"state_dir", flags.state_dir},
      {"pod_backend", launch.on_slurm ? "slurm" : "local"},
      {"port", launch.relaunch ? absl::StrCat(ports->rpc.port) : "0"}};
  if (launch.relaunch && flags.http_port == 0) {
    more.emplace_back("http_port", absl::StrCat(ports->http.port));
  }
  if (launch.relaunch && !set.IsSet("master_timeout")) {
    more.emplace_back("master_timeout", kMasterTimeout);
  }
  if (flags.detach) more.emplace_back("progress", "none");
  const absl::StatusOr<std::string> argument =
      flags::PackedMasterArgument(set, more);
  if (!argument.ok()) return FailCommand(command, argument.status());
  launch.program = master_program;
  launch.args = {*argument};
  launch.environment = flags::Environment();
  launch.detach = flags.detach;
  launch.plain_log = flags.log_format != "json";
  const int exit_code = LaunchMaster(launch, dir, *lock);
  if (exit_code != 0) {
    TellFailure(command, exit_code, dir);
  } else if (flags.detach) {
    TellDetached(dir);
  } else {
    TellSuccess(flags, dir);
  }
  return exit_code;
}

}  // namespace elasticdl::cli
