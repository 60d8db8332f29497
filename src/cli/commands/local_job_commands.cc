// elasticdl list, top, scale and stop.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "commands/local_job.h"
#include "commands/local_job_client.h"
#include "elasticdl/jobdir.h"
#include "environment.h"
#include "flag_builder.h"

namespace elasticdl::cli {
namespace {

using Json = nlohmann::json;

constexpr char kGroup[] = "Options";

// The flags that all of them have.
struct JobChoice {
  std::string job_name;
  std::string state_dir = DefaultStateDir();

  void AddTo(FlagSet* set, bool with_name = true) {
    if (with_name) {
      set->Add(
          "job_name", &job_name,
          Info(kGroup, "The job; default: the one that runs.").Value("NAME"));
    }
    set->Add("state_dir", &state_dir,
             Info(kGroup, "Where local jobs keep their state.").Value("DIR"));
  }
};

int Fail(const FlagSet& set, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", set.command().c_str(),
               std::string(status.message()).c_str());
  return 1;
}

std::string State(const jobdir::JobDir& job) {
  if (job.IsRunning()) return "running";
  const std::string state = ReadJobEnd(job).state;
  return state.empty() ? "killed" : state;
}

double Number(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : 0;
}

std::string Text(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// The answer of /api/status for people.
std::string FormatStatus(const Json& status) {
  std::string text = absl::StrFormat(
      "%s: %s, epoch %d, step %d, %.0f records/s", Text(status, "job"),
      Text(status, "state"), static_cast<int64_t>(Number(status, "epoch")),
      static_cast<int64_t>(Number(status, "step")),
      Number(status, "records_per_s"));
  if (status.contains("loss") && status["loss"].is_number()) {
    absl::StrAppendFormat(&text, ", loss %.4g", Number(status, "loss"));
  }
  absl::StrAppendFormat(&text, ", workers %d/%d, generation %d\n",
                        static_cast<int64_t>(Number(status, "workers")),
                        static_cast<int64_t>(Number(status, "target_workers")),
                        static_cast<int64_t>(Number(status, "generation")));
  const auto pods = status.find("pods");
  if (pods != status.end() && pods->is_array()) {
    absl::StrAppendFormat(&text, "%-40s %-8s %8s  %s\n", "POD", "TYPE", "PID",
                          "STATE");
    for (const Json& pod : *pods) {
      absl::StrAppendFormat(
          &text, "%-40s %-8s %8d  %s\n", Text(pod, "name"), Text(pod, "type"),
          static_cast<int64_t>(Number(pod, "pid")), Text(pod, "state"));
    }
  }
  const auto evaluations = status.find("evaluations");
  if (evaluations != status.end() && !evaluations->empty()) {
    const Json& last = evaluations->back();
    absl::StrAppend(&text, "evaluation at step ",
                    static_cast<int64_t>(Number(last, "step")), ": ",
                    last.value("metrics", Json::object()).dump(), "\n");
  }
  return text;
}

// False once the master has ended; true after `interval`.
bool StillRuns(int pidfd, absl::Duration interval) {
  pollfd fd = {pidfd, POLLIN, 0};
  return poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(interval))) ==
         0;
}

int WatchJob(const FlagSet& set, const jobdir::JobDir& job) {
  const Fd master = WatchMaster(job);
  do {
    const auto body = HttpGet(job, "/api/status");
    if (!body.ok()) return Fail(set, body.status());
    // Home, clear to the end: no flicker.
    std::printf("\x1b[H\x1b[J%s",
                FormatStatus(Json::parse(*body, nullptr, false)).c_str());
    std::fflush(stdout);
  } while (master.valid() && StillRuns(master.get(), absl::Seconds(1)));
  const JobEnd end = ReadJobEnd(job);
  std::printf("job %s %s: %s\n", job.job_name().c_str(), State(job).c_str(),
              end.reason.c_str());
  return 0;
}

int PrintUrl(const FlagSet& set, const jobdir::JobDir& job) {
  if (!job.IsRunning()) {
    return Fail(set, absl::FailedPreconditionError(absl::StrCat(
                         "job ", job.job_name(), " is not running")));
  }
  const auto address = job.ReadHttpAddress();
  if (!address.ok()) return Fail(set, address.status());
  const auto token = job.ReadToken();
  if (!token.ok()) return Fail(set, token.status());
  std::printf("http://%s/?token=%s\n", address->c_str(), token->c_str());
  return 0;
}

}  // namespace

int RunList(const std::vector<std::string>& args) {
  FlagSet set("elasticdl list", "Lists the jobs on this machine.");
  JobChoice choice;
  choice.AddTo(&set, /*with_name=*/false);
  bool json = false;
  set.Add("json", &json, Info(kGroup, "Print JSON."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  Json jobs = Json::array();
  for (const jobdir::JobDir& job : jobdir::ListJobs(choice.state_dir)) {
    jobs.push_back({{"job", job.job_name()},
                    {"state", State(job)},
                    {"reason", ReadJobEnd(job).reason},
                    {"dir", job.path()}});
  }
  if (json) {
    std::printf("%s\n", jobs.dump().c_str());
    return 0;
  }
  if (jobs.empty()) std::printf("no jobs in %s\n", choice.state_dir.c_str());
  for (const Json& job : jobs) {
    std::printf("%-40s %-10s %s\n", Text(job, "job").c_str(),
                Text(job, "state").c_str(), Text(job, "dir").c_str());
  }
  return 0;
}

int RunTop(const std::vector<std::string>& args) {
  FlagSet set("elasticdl top", "Shows what a job is doing.");
  JobChoice choice;
  choice.AddTo(&set);
  bool json = false;
  bool url = false;
  set.Add("json", &json, Info(kGroup, "Print the status once, as JSON."));
  set.Add("url", &url,
          Info(kGroup,
               "Print the address of the job's status page, for a browser on "
               "this machine. It holds the job's token."));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = FindJob(choice.state_dir, choice.job_name);
  if (!job.ok()) return Fail(set, job.status());
  if (url) return PrintUrl(set, *job);
  if (!json && isatty(STDOUT_FILENO) == 1) return WatchJob(set, *job);
  const auto body = HttpGet(*job, "/api/status");
  if (!body.ok()) return Fail(set, body.status());
  std::printf("%s",
              json ? absl::StrCat(*body, "\n").c_str()
                   : FormatStatus(Json::parse(*body, nullptr, false)).c_str());
  return 0;
}

int RunScale(const std::vector<std::string>& args) {
  FlagSet set("elasticdl scale", "Changes the number of a job's workers.");
  JobChoice choice;
  choice.AddTo(&set);
  int64_t num_workers = 0;
  set.Add(
      "num_workers", &num_workers,
      Info(kGroup, "How many workers the job shall have.").Required().Min(1));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = FindJob(choice.state_dir, choice.job_name);
  if (!job.ok()) return Fail(set, job.status());
  const auto body =
      HttpPost(*job, absl::StrCat("/api/scale?num_workers=", num_workers));
  if (!body.ok()) return Fail(set, body.status());
  std::printf("job %s: %d workers asked for\n", job->job_name().c_str(),
              static_cast<int>(num_workers));
  return 0;
}

int RunStop(const std::vector<std::string>& args) {
  FlagSet set("elasticdl stop", "Stops a job and waits for its end.");
  JobChoice choice;
  choice.AddTo(&set);
  double timeout = 60;
  set.Add("timeout", &timeout,
          Info(kGroup, "Wait so many seconds for the job's end.")
              .Value("SECS")
              .Min(0));
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = FindJob(choice.state_dir, choice.job_name);
  if (!job.ok()) return Fail(set, job.status());
  const Fd master = WatchMaster(*job);
  const auto body = HttpPost(*job, "/api/stop");
  if (!body.ok()) return Fail(set, body.status());
  if (master.valid() && StillRuns(master.get(), absl::Seconds(timeout))) {
    return Fail(set, absl::DeadlineExceededError(absl::StrCat(
                         "job ", job->job_name(), " has not ended after ",
                         timeout, " seconds")));
  }
  std::printf("job %s has been stopped\n", job->job_name().c_str());
  return 0;
}

}  // namespace elasticdl::cli
