// A job on a Kubernetes cluster. The commands of `elasticdl` do everything:
// `train` submits it and brings the log of its master, which holds the events
// and the audit; `kill`, `scale` and `stop` change it.
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/experiment/cluster_job.h"
#include "elasticdl/flags/environment.h"
#include "experiment/live_job.h"
#include "experiment/tailed_file.h"

namespace elasticdl::cli {
namespace {

using experiment::ActionKind;
using experiment::JobPod;

// A request to the API server, and one to the master behind it.
constexpr absl::Duration kCommandPatience = absl::Seconds(60);
// Pods have 30 seconds to terminate, and `stop` waits a minute for that.
constexpr absl::Duration kRemovalPatience = absl::Minutes(3);

using Arguments = std::vector<std::string>;

// The flags that say which job it is.
Arguments ChoiceOf(const LiveJobOptions& options) {
  Arguments choice = {absl::StrCat("--job_name=", options.name)};
  for (const char* name : {"namespace", "force_use_kube_config_file"}) {
    const auto it = options.flags.find(name);
    if (it == options.flags.end()) continue;
    choice.push_back(absl::StrCat("--", name, "=", it->second));
  }
  return choice;
}

std::string NoteOf(const LiveJobOptions& options) {
  return JoinPath(options.notes, options.name);
}

Arguments ClusterCommand(const std::string& command, const Arguments& choice,
                         const Arguments& more) {
  // `elasticdl` would look for a job on this machine first.
  Arguments argv = {flags::ProgramBeside("elasticdl-cluster"), command};
  argv.insert(argv.end(), choice.begin(), choice.end());
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

// Its output. FAILED_PRECONDITION: the job has ended; UNAVAILABLE: it went
// wrong for another reason.
absl::StatusOr<std::string> RunClusterCommand(const Arguments& argv,
                                              absl::Duration patience) {
  process::RunOptions options;
  options.argv = argv;
  options.timeout = patience;
  ELASTICDL_ASSIGN_OR_RETURN(const process::RunResult result,
                             process::Run(options));
  if (result.code == 0) return result.output;
  const std::string words = process::LastWords(result.error, 500);
  // As `elasticdl` says it of a job that ended by itself a moment ago.
  return absl::StrContains(words, "is not running")
             ? absl::FailedPreconditionError(words)
             : absl::UnavailableError(words.empty() ? result.HowItEnded()
                                                    : words);
}

// Removes all objects of a job, whatever its state is.
absl::Status RemoveClusterJob(const Arguments& choice) {
  return RunClusterCommand(ClusterCommand("stop", choice, {"--force"}),
                           kRemovalPatience)
      .status();
}

struct JobOutputs {
  TailedFile log;
  LineWriter events;
  LineWriter audit;
};

// Thread-compatible. The destructor removes the job from the cluster.
class JobOnCluster : public LiveJob {
 public:
  JobOnCluster(const LiveJobOptions& options, process::Process process,
               JobOutputs outputs)
      : LiveJob(options, std::move(process)), outputs_(std::move(outputs)) {}
  ~JobOnCluster() override {
    if (!reaped()) kill(process_.pid, SIGKILL);
    JobOnCluster::Reap();
    JobOnCluster::CleanUp().IgnoreError();
  }

  int events_fd() const override { return outputs_.log.fd(); }

  void ReadEvents() override {
    const auto lines = log_.Take(outputs_.log.ReadNew());
    const double now = WallSeconds();
    for (const std::string& line : lines.events) {
      view_.OnLine(line);
      clock_.OnEvent(view_.last_event_at(), now);
      Keep(outputs_.events, line);
    }
    for (const std::string& line : lines.audit) Keep(outputs_.audit, line);
  }

  double clock_offset() const override { return clock_.seconds(); }

  absl::StatusOr<double> Deliver(
      const experiment::Delivery& delivery) override {
    if (delivery.signal == 0) {
      const bool servers = delivery.kind == ActionKind::kServers;
      ELASTICDL_RETURN_IF_ERROR(
          Scale(servers ? 0 : delivery.target, servers ? delivery.target : 0));
      return WallSeconds();
    }
    Arguments more = {"--json"};
    if (delivery.signal == SIGTERM) more.push_back("--notice");
    for (const JobPod& pod : delivery.pods) more.push_back(pod.name);
    ELASTICDL_ASSIGN_OR_RETURN(const std::string output, Ask("kill", more));
    for (const JobPod& pod : delivery.pods) view_.OnPodEnded(pod.name);
    return experiment::KillTime(output, WallSeconds());
  }

  absl::Status Scale(int64_t workers, int64_t servers) override {
    return Ask("scale", {workers > 0 ? absl::StrCat("--num_workers=", workers)
                                     : absl::StrCat("--num_ps_pods=", servers)})
        .status();
  }

  // The log ends with what the job says at its end, so it is read on.
  void Stop() override {
    if (reaped()) return;
    if (std::exchange(asked_, true)) {
      kill(process_.pid, SIGKILL);
    } else if (log_.starts() > 0) {
      process::Options start;
      start.argv = ClusterCommand("stop", ChoiceOf(options_), {"--keep_pods"});
      start.environment = process::InheritedEnvironment();
      start.log_file = PathOf("output.log");
      absl::StatusOr<process::Process> stopper = process::Start(start);
      if (stopper.ok()) stopper_ = *std::move(stopper);
    } else {
      // `train` finishes what it submits, then leaves the job alone.
      kill(process_.pid, SIGTERM);
    }
  }

  void Reap() override {
    if (reaped()) return;
    LiveJob::Reap();
    if (stopper_.has_value()) {
      // The job has ended; it only waits to see that.
      kill(stopper_->pid, SIGKILL);
      while (waitpid(stopper_->pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    ReadEvents();
  }

  absl::Status CleanUp() override {
    if (std::exchange(removed_, true)) return absl::OkStatus();
    // They go with their pods.
    if (exit_code() != 0 && !asked_) KeepLogs();
    ELASTICDL_RETURN_IF_ERROR(
        Annotate(RemoveClusterJob(ChoiceOf(options_)),
                 absl::StrCat("job ", options_.name,
                              " is left on the cluster, and will be removed by "
                              "the next run")));
    return RemoveTree(NoteOf(options_));
  }

  double cpu_seconds() const override { return -1; }

  experiment::LedgerCheck Ledger(bool finished) const override {
    experiment::LedgerCheck check = experiment::CheckLogLedger(
        ReadFile(PathOf("audit.jsonl")).value_or(""), log_, finished);
    if (!check.exact || kept_.ok()) return check;
    check.exact = false;
    check.problem = std::string(kept_.message());
    return check;
  }

 private:
  absl::StatusOr<std::string> Ask(const std::string& command,
                                  const Arguments& more) {
    return RunClusterCommand(ClusterCommand(command, ChoiceOf(options_), more),
                             kCommandPatience);
  }

  void KeepLogs() {
    const absl::StatusOr<std::string> logs = Ask("logs", {});
    WriteFileAtomic(PathOf("pods.log"),
                    logs.ok() ? *logs : std::string(logs.status().message()))
        .IgnoreError();
  }

  void Keep(LineWriter& file, const std::string& line) {
    kept_.Update(file.Append(line));
  }

  JobOutputs outputs_;
  experiment::MasterLog log_;
  experiment::ClockOffset clock_;
  // The first line that could not be written.
  absl::Status kept_;
  std::optional<process::Process> stopper_;
  bool asked_ = false;
  bool removed_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LiveJob>> StartJobOnCluster(
    const LiveJobOptions& options) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.folder));
  JobOutputs outputs;
  ELASTICDL_ASSIGN_OR_RETURN(
      outputs.log, TailedFile::Create(JoinPath(options.folder, "master.log")));
  ELASTICDL_ASSIGN_OR_RETURN(
      outputs.events,
      LineWriter::Open(JoinPath(options.folder, "events.jsonl")));
  ELASTICDL_ASSIGN_OR_RETURN(
      outputs.audit, LineWriter::Open(JoinPath(options.folder, "audit.jsonl")));
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.notes));
  ELASTICDL_RETURN_IF_ERROR(
      WriteFileAtomic(NoteOf(options), absl::StrJoin(ChoiceOf(options), "\n")));
  process::Options start;
  start.argv = JobCommandLine(options);
  start.environment = process::InheritedEnvironment();
  start.log_file = JoinPath(options.folder, "output.log");
  start.output_fd = outputs.log.writer();
  ELASTICDL_ASSIGN_OR_RETURN(process::Process started, process::Start(start));
  return std::make_unique<JobOnCluster>(options, std::move(started),
                                        std::move(outputs));
}

absl::Status RemoveLeftJobs(const std::string& folder) {
  if (!IsDirectory(folder)) return absl::OkStatus();
  ELASTICDL_ASSIGN_OR_RETURN(const std::vector<std::string> notes,
                             ListDirectory(folder));
  for (const std::string& name : notes) {
    const std::string note = JoinPath(folder, name);
    ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(note));
    std::fprintf(stderr,
                 "removing job %s, which an interrupted experiment has left on "
                 "the cluster\n",
                 name.c_str());
    ELASTICDL_RETURN_IF_ERROR(Annotate(
        RemoveClusterJob(absl::StrSplit(text, '\n', absl::SkipEmpty())),
        absl::StrCat("job ", name)));
    ELASTICDL_RETURN_IF_ERROR(RemoveTree(note));
  }
  return absl::OkStatus();
}

}  // namespace elasticdl::cli
