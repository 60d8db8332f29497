#include "top_scale_stop_logs.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/limits.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/text.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/flags/flag_builder.h"
#include "elasticdl/flags/grammar.h"
#include "open.h"
#include "top/terminal.h"
#include "top/top.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

constexpr char kGroup[] = "Options";

double Number(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : 0;
}

int64_t Whole(const Json& json, const char* key) {
  return static_cast<int64_t>(Number(json, key));
}

std::string Text(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// Of a pod that has reported it, else "-".
std::string Used(const Json& pod, const char* key, double unit) {
  const auto usage = pod.find("usage");
  const double value =
      usage != pod.end() && usage->is_object() ? Number(*usage, key) : 0;
  return value > 0 ? absl::StrFormat("%.0f", value / unit) : "-";
}

void FormatPods(const Json& pods, std::string* text) {
  constexpr char kLine[] = "%-40s %-8s %8s %7s %7s %8s  %s\n";
  absl::StrAppendFormat(text, kLine, "POD", "TYPE", "PID", "MB", "REC/S",
                        "STEP MS", "STATE");
  for (const Json& pod : pods) {
    const int64_t pid = Whole(pod, "pid");
    const std::string message = Text(pod, "message");
    absl::StrAppendFormat(
        text, kLine, Text(pod, "name"), Text(pod, "type"),
        // Only processes on this machine have one.
        pid == 0 ? "-" : absl::StrCat(pid), Used(pod, "memory_bytes", 1e6),
        Used(pod, "records_per_s", 1), Used(pod, "step_ms", 1),
        absl::StrCat(Text(pod, "state"), message.empty() ? "" : ": ", message));
  }
}

// Before the first step there is no speed, but something to wait for.
bool IsStarting(const Json& status) {
  return Text(status, "state") == "running" && Whole(status, "workers") == 0 &&
         Whole(status, "step") == 0;
}

// As the master prints them.
std::string FormatMetrics(const Json& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics.items()) {
    // JSON has no NaN.
    absl::StrAppendFormat(&text, " %s=%s", name,
                          value.is_number()
                              ? absl::StrFormat("%.6g", value.get<double>())
                              : "nan");
  }
  return text;
}

// The response of /api/status as text.
std::string FormatStatus(const Json& status) {
  const double rate = Number(status, "records_per_s");
  std::string text =
      absl::StrCat(Text(status, "job"), ": ", Text(status, "state"));
  if (IsStarting(status)) {
    absl::StrAppend(&text,
                    ", starting workers (they compile or load the model)");
  } else {
    absl::StrAppendFormat(&text, ", epoch %d, step %d, %s records/s",
                          Whole(status, "epoch"), Whole(status, "step"),
                          rate < 10 ? absl::StrFormat("%.2g", rate)
                                    : absl::StrFormat("%.0f", rate));
  }
  if (status.contains("loss") && status["loss"].is_number()) {
    absl::StrAppendFormat(&text, ", loss %.4g", Number(status, "loss"));
  }
  absl::StrAppendFormat(&text, ", workers %d/%d", Whole(status, "workers"),
                        Whole(status, "target_workers"));
  // There are no worlds with parameter servers.
  if (const int64_t generation = Whole(status, "generation"); generation > 0) {
    absl::StrAppend(&text, ", generation ", generation);
  }
  absl::StrAppend(&text, "\n");
  const auto pods = status.find("pods");
  if (pods != status.end() && pods->is_array()) FormatPods(*pods, &text);
  const auto evaluations = status.find("evaluations");
  if (evaluations != status.end() && !evaluations->empty()) {
    const Json& last = evaluations->back();
    absl::StrAppend(&text, "evaluation at step ", Whole(last, "step"), ":",
                    FormatMetrics(last.value("metrics", Json::object())), "\n");
  }
  return text;
}

void RunningFirst(std::vector<JobSummary>* jobs) {
  std::stable_partition(jobs->begin(), jobs->end(), [](const JobSummary& job) {
    return job.state == "running";
  });
}

// A full screen until the job has ended or the user quits.
int WatchJob(const flags::FlagSet& set, JobHandle& job) {
  TopOptions options;
  options.color = WantsColor(flags::GetEnv("NO_COLOR"), flags::GetEnv("TERM"));
  options.unicode = HasUtf8(flags::GetEnv("LC_ALL"), flags::GetEnv("LC_CTYPE"),
                            flags::GetEnv("LANG"));
  options.kill = [](int64_t pid) { return SignalPod(pid, SIGKILL); };
  absl::Status status;
  {
    ScreenTerminal terminal;
    status = WatchTop(job, terminal, options);
  }
  if (!status.ok()) return Fail(set, status);
  if (!job.WaitEnd(absl::ZeroDuration())) return 0;
  const JobEnd end = job.End();
  std::printf("job %s %s: %s\n", job.name().c_str(), end.state.c_str(),
              end.reason.c_str());
  return 0;
}

}  // namespace

JobChoice::JobChoice() : state_dir(flags::DefaultStateDir()) {}

void JobChoice::AddTo(flags::FlagSet* set, bool with_name) {
  if (with_name) {
    set->Add("job_name", &job_name,
             flags::Info(kGroup, "The job; default: the one that runs.")
                 .Value("NAME"));
  }
  set->Add(
      "state_dir", &state_dir,
      flags::Info(kGroup, "Where local jobs keep their state.").Value("DIR"));
  set->Add("namespace", &name_space,
           flags::Info(
               kGroup,
               "Look on the cluster, in this namespace; otherwise local jobs "
               "first.")
               .Value("NAME")
               .Check([](const std::string& text) {
                 return flags::CheckKubeName(text, 63, false);
               }));
  set->Add("force_use_kube_config_file", &force_use_kube_config_file,
           flags::Info(kGroup, "Use ~/.kube/config even inside a cluster."));
}

int TopCommand(const std::vector<std::string>& args, const JobFinder& find) {
  flags::FlagSet set("elasticdl top",
                     "Shows what a job is doing: on a terminal as a live "
                     "screen with keys to scale, to read logs and to kill.");
  JobChoice choice;
  choice.AddTo(&set);
  bool json = false;
  bool url = false;
  set.Add("json", &json,
          flags::Info(kGroup, "Print the status once, as JSON."));
  bool once = false;
  set.Add("once", &once, flags::Info(kGroup, "Print the status once."));
  set.Add(
      "url", &url,
      flags::Info(kGroup,
                  "Print the address of the job's page, for a browser on this "
                  "machine. It holds the job's token. On a cluster, forward it "
                  "through the API server until Ctrl-C or the job's end."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = find(choice);
  if (!job.ok()) return Fail(set, job.status());
  if (url) {
    const auto page = (*job)->OpenPage(/*port=*/0);
    if (!page.ok()) return Fail(set, page.status());
    std::printf("%s\n", page->url.c_str());
    ForwardPage(*page, **job);
    return 0;
  }
  const bool terminal = isatty(STDOUT_FILENO) == 1 &&
                        isatty(STDIN_FILENO) == 1 &&
                        flags::GetEnv("TERM") != "dumb";
  if (!json && !once && terminal) return WatchJob(set, **job);
  const auto body = (*job)->Status();
  if (!body.ok()) return Fail(set, body.status());
  std::printf("%s", json ? absl::StrCat(*body, "\n").c_str()
                         : FormatStatus(ParseJson(*body)).c_str());
  return 0;
}

int ScaleCommand(const std::vector<std::string>& args, const JobFinder& find) {
  flags::FlagSet set("elasticdl scale",
                     "Changes the number of a job's workers or parameter "
                     "servers while it trains.");
  JobChoice choice;
  choice.AddTo(&set);
  int64_t num_workers = 0;
  set.Add("num_workers", &num_workers,
          flags::Info(kGroup, "The new number of workers.").Min(1));
  int64_t num_servers = 0;
  set.Add("num_ps_pods", &num_servers,
          flags::Info(kGroup,
                      "The new number of parameter servers. Parts of the model "
                      "move to them while training continues.")
              .Min(1)
              .Max(kMaxParameterServers));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  if (num_workers == 0 && num_servers == 0) {
    return set.Report(absl::InvalidArgumentError(
        "say how many: --num_workers=N, --num_ps_pods=N or both"));
  }
  const auto job = find(choice);
  if (!job.ok()) return Fail(set, job.status());
  const absl::Status status = (*job)->Scale(num_workers, num_servers);
  if (!status.ok()) return Fail(set, status);
  std::vector<std::string> asked;
  if (num_workers > 0) asked.push_back(Count(num_workers, "worker"));
  if (num_servers > 0) asked.push_back(Count(num_servers, "parameter server"));
  std::printf("job %s: scaling to %s\n", (*job)->name().c_str(),
              absl::StrJoin(asked, " and ").c_str());
  return 0;
}

int StopCommand(const std::vector<std::string>& args, const JobFinder& find) {
  flags::FlagSet set(
      "elasticdl stop",
      "Stops a job and waits for its end. On a cluster it then removes "
      "the job's pods with their logs, its Service and its Secret; "
      "also of a job that has ended by itself.");
  JobChoice choice;
  choice.AddTo(&set);
  StopRequest request;
  double timeout = 60;
  set.Add("timeout", &timeout,
          flags::Info(kGroup, "How many seconds to wait for the job to end.")
              .Value("SECS")
              .Min(0));
  set.Add(
      "keep_pods", &request.keep_pods,
      flags::Info(kGroup,
                  "On a cluster: leave the pods of a job that was running, for "
                  "their logs."));
  set.Add("force", &request.force,
          flags::Info(kGroup,
                      "On a cluster: remove the job at once, without asking "
                      "its master; if there is none, that is no error."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  if (request.force && request.keep_pods) {
    return set.Report(absl::InvalidArgumentError(
        "--force removes the pods, --keep_pods leaves them"));
  }
  request.timeout = absl::Seconds(timeout);
  const auto job = find(choice);
  if (request.force && absl::IsNotFound(job.status())) {
    std::printf("%s\n", std::string(job.status().message()).c_str());
    return 0;
  }
  if (!job.ok()) return Fail(set, job.status());
  const absl::StatusOr<std::string> words = (*job)->Stop(request);
  if (!words.ok()) return Fail(set, words.status());
  std::printf("%s\n", words->c_str());
  return 0;
}

int LogsCommand(const std::vector<std::string>& args, const JobFinder& find) {
  flags::FlagSet set("elasticdl logs", "Shows the logs of a job's pods.");
  JobChoice choice;
  choice.AddTo(&set);
  LogRequest request;
  std::vector<std::string> pods;
  set.Add("follow", &request.follow,
          flags::Info(kGroup, "Follow until the job has ended."));
  set.Add("previous", &request.previous,
          flags::Info(kGroup, "Show the logs of the previous run."));
  set.Add("pod", &request.pod,
          flags::Info(kGroup, "The same as POD.").Value("POD"));
  set.AddPositional("POD", &pods, 0,
                    "master, worker-0, ps-0, a number (a worker) or the name "
                    "of a pod; default: all.",
                    1);
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = find(choice);
  if (!job.ok()) return Fail(set, job.status());
  if (!pods.empty()) request.pod = pods[0];
  const absl::Status status = (*job)->Logs(request);
  return status.ok() ? 0 : Fail(set, status);
}

std::string FormatJobs(std::vector<JobSummary> jobs, bool header) {
  RunningFirst(&jobs);
  std::string text;
  if (header && !jobs.empty()) {
    absl::StrAppendFormat(&text, "%-40s %-10s %s\n", "JOB", "STATE",
                          absl::AsciiStrToUpper(jobs[0].place_kind));
  }
  for (const JobSummary& job : jobs) {
    absl::StrAppendFormat(&text, "%-40s %-10s %s\n", job.job, job.state,
                          job.place);
  }
  return text;
}

void PrintJobs(std::vector<JobSummary> jobs, bool json,
               const std::string& none) {
  if (json) {
    RunningFirst(&jobs);
    Json list = Json::array();
    for (const JobSummary& job : jobs) {
      list.push_back({{"job", job.job},
                      {"state", job.state},
                      {"reason", job.reason},
                      {job.place_kind, job.place}});
    }
    std::printf("%s\n", JsonText(list).c_str());
    return;
  }
  if (jobs.empty()) std::printf("%s\n", none.c_str());
  // A script that reads the lines need not know of a header.
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::fputs(FormatJobs(std::move(jobs), terminal).c_str(), stdout);
}

absl::Status SignalPod(int64_t pid, int signal) {
  // 0 and below mean groups of processes, or all of them; 1 is init.
  if (pid <= 1 || pid > std::numeric_limits<pid_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(pid, " is no pod's pid"));
  }
  if (kill(static_cast<pid_t>(pid), signal) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat("kill ", pid));
}

int Fail(const flags::FlagSet& set, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", set.command().c_str(),
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace elasticdl::cli
