// elasticdl list, top, open, report, scale, stop and logs: for local jobs here,
// for all others in the program for clusters.
#include "local/local_or_cluster.h"

#include <poll.h>
#include <signal.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster_exec.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/jobdir.h"
#include "job_handle.h"
#include "kill.h"
#include "local/client.h"
#include "local/find_job.h"
#include "open.h"
#include "report.h"
#include "top_scale_stop_logs.h"

namespace elasticdl::cli {
namespace {

using Args = std::vector<std::string>;

std::string State(const jobdir::JobDir& job) {
  if (job.IsRunning()) return "running";
  const std::string state = ReadJobEnd(job).state;
  return state.empty() ? "killed" : state;
}

// Thread-compatible.
class LocalJobHandle : public JobHandle {
 public:
  explicit LocalJobHandle(jobdir::JobDir dir)
      : dir_(std::move(dir)), end_(WatchJobEnd(dir_)) {}

  const std::string& name() const override { return dir_.job_name(); }

  absl::StatusOr<std::string> Get(const std::string& what) override {
    if (absl::StartsWith(what, "update") && !dir_.IsRunning()) {
      return ReadEventLog(dir_.EventsFile());
    }
    return HttpGet(dir_, absl::StrCat("/api/v1/", what));
  }
  absl::Status Scale(int64_t num_workers, int64_t num_servers) override {
    std::vector<std::string> query;
    if (num_workers > 0) {
      query.push_back(absl::StrCat("num_workers=", num_workers));
    }
    if (num_servers > 0) {
      query.push_back(absl::StrCat("num_ps_pods=", num_servers));
    }
    return HttpPost(dir_,
                    absl::StrCat("/api/v1/scale?", absl::StrJoin(query, "&")))
        .status();
  }
  absl::StatusOr<std::string> Stop(const StopRequest& request) override {
    if (request.force) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job ", name(), " is on this machine; --force is for clusters"));
    }
    ELASTICDL_RETURN_IF_ERROR(HttpPost(dir_, "/api/v1/stop").status());
    ELASTICDL_RETURN_IF_ERROR(WaitStopped(*this, request.timeout));
    const std::string reason = ReadJobEnd(dir_).reason;
    return absl::StrCat("job ", name(), " has been stopped",
                        reason.empty() ? "" : ": ", reason);
  }
  bool WaitEnd(absl::Duration timeout) override {
    if (!end_.valid()) return true;
    pollfd fd = {end_.get(), POLLIN, 0};
    return poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) !=
           0;
  }
  JobEnd End() override { return {State(dir_), ReadJobEnd(dir_).reason}; }
  absl::Status Logs(const LogRequest& request) override {
    return PrintLocalLogs(dir_, request);
  }
  absl::StatusOr<JobPage> OpenPage(int /*port*/) override {
    if (!dir_.IsRunning()) {
      return absl::FailedPreconditionError(
          absl::StrCat("job ", name(), " is not running"));
    }
    ELASTICDL_ASSIGN_OR_RETURN(const std::string address,
                               dir_.ReadHttpAddress());
    ELASTICDL_ASSIGN_OR_RETURN(const std::string token, dir_.ReadToken());
    return JobPage{absl::StrCat("http://", address, "/?token=", token)};
  }

 private:
  const jobdir::JobDir dir_;
  const Fd end_;
};

// Finds a local job, or hands over to the program for clusters if the command
// line names a namespace or there is no such local job.
JobFinder LocalFirst(const std::string& command, const Args& args) {
  return [=](const JobChoice& choice)
             -> absl::StatusOr<std::unique_ptr<JobHandle>> {
    if (!choice.name_space.empty()) return ExecCluster(command, args);
    absl::StatusOr<jobdir::JobDir> job =
        FindJob(choice.state_dir, choice.job_name, command);
    if (job.ok()) return std::make_unique<LocalJobHandle>(*std::move(job));
    if (!absl::IsNotFound(job.status()) || !ClusterIsConfigured()) {
      return job.status();
    }
    return Annotate(ExecCluster(command, args), job.status().message());
  };
}

}  // namespace

int RunList(const Args& args) {
  flags::FlagSet set(
      "elasticdl list",
      "Lists the jobs on this machine, or with --namespace those on "
      "the cluster.");
  JobChoice choice;
  choice.AddTo(&set, /*with_name=*/false);
  bool json = false;
  set.Add("json", &json, flags::Info("Options", "Print JSON."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  if (!choice.name_space.empty()) return Fail(set, ExecCluster("list", args));
  std::vector<JobSummary> jobs;
  for (const jobdir::JobDir& job : jobdir::ListJobs(choice.state_dir)) {
    jobs.push_back({job.job_name(), State(job), ReadJobEnd(job).reason, "dir",
                    job.path()});
  }
  PrintJobs(jobs, json, absl::StrCat("no jobs in ", choice.state_dir));
  if (!json && ClusterIsConfigured()) {
    std::fprintf(stderr,
                 "these are the jobs on this machine; elasticdl list "
                 "--namespace=NAME lists those on the cluster\n");
  }
  return 0;
}

int RunTop(const Args& args) {
  return TopCommand(args, LocalFirst("top", args));
}
int RunScale(const Args& args) {
  return ScaleCommand(args, LocalFirst("scale", args));
}
int RunKill(const Args& args) {
  return KillCommand(args, LocalFirst("kill", args),
                     [](const JobChoice&, const DoomedPod& pod, bool notice) {
                       return SignalPod(pod.pid, notice ? SIGTERM : SIGKILL);
                     });
}
int RunStop(const Args& args) {
  return StopCommand(args, LocalFirst("stop", args));
}
int RunOpen(const Args& args) {
  return OpenCommand(args, LocalFirst("open", args));
}
int RunReport(const Args& args) {
  return ReportCommand(args, LocalFirst("report", args));
}
int RunLogs(const Args& args) {
  return LogsCommand(args, LocalFirst("logs", args));
}

}  // namespace elasticdl::cli
