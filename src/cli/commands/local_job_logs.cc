// elasticdl logs.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "commands/local_job.h"
#include "commands/local_job_client.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "environment.h"
#include "flag_builder.h"

namespace elasticdl::cli {
namespace {

constexpr char kGroup[] = "Options";
constexpr absl::string_view kSuffix = ".log";

// Copies log files to standard output from where it stopped the last time.
class LogPrinter {
 public:
  explicit LogPrinter(std::string folder) : folder_(std::move(folder)) {}

  // Names of the pods that have a log and match: all for "", else the whole
  // name ("master", "elasticdl-worker-j-0") or its end ("worker-j-0", "0").
  std::vector<std::string> Match(const std::string& wanted) const {
    std::vector<std::string> pods;
    const auto files = ListDirectory(folder_);
    if (!files.ok()) return pods;
    for (absl::string_view file : *files) {
      if (!absl::ConsumeSuffix(&file, kSuffix)) continue;
      if (wanted.empty() || file == wanted ||
          absl::EndsWith(file, absl::StrCat("-", wanted))) {
        pods.emplace_back(file);
      }
    }
    return pods;
  }

  // `with_names`: a heading whenever another pod's lines follow.
  absl::Status PrintNew(const std::string& pod, bool with_names) {
    const std::string path = JoinPath(folder_, absl::StrCat(pod, kSuffix));
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
    off_t& offset = offsets_[pod];
    char buffer[65536];
    ssize_t n;
    while ((n = pread(fd.get(), buffer, sizeof(buffer), offset)) > 0) {
      if (with_names && last_ != pod) {
        std::printf("==> %s <==\n", pod.c_str());
      }
      last_ = pod;
      std::fwrite(buffer, 1, static_cast<size_t>(n), stdout);
      offset += n;
    }
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  const std::string folder_;
  std::map<std::string, off_t> offsets_;
  std::string last_;
};

absl::Status PrintAll(LogPrinter& printer, const std::string& wanted,
                      bool follow) {
  const std::vector<std::string> pods = printer.Match(wanted);
  if (pods.empty() && !follow) {
    return absl::NotFoundError(
        absl::StrCat("no log of '", wanted,
                     "'; there are: ", absl::StrJoin(printer.Match(""), ", ")));
  }
  const bool with_names = pods.size() > 1 || wanted.empty();
  for (const std::string& pod : pods) {
    ELASTICDL_RETURN_IF_ERROR(printer.PrintNew(pod, with_names));
  }
  return absl::OkStatus();
}

// Until the master has ended.
absl::Status Follow(const jobdir::JobDir& job, LogPrinter& printer,
                    const std::string& wanted) {
  const Fd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_add_watch(changes.get(), job.LogsDir().c_str(),
                        IN_MODIFY | IN_CREATE) < 0) {
    return ErrnoToStatus(errno, absl::StrCat("watch ", job.LogsDir()));
  }
  const Fd master = WatchMaster(job);
  while (true) {
    ELASTICDL_RETURN_IF_ERROR(PrintAll(printer, wanted, /*follow=*/true));
    if (!master.valid()) return absl::OkStatus();
    pollfd fds[] = {{changes.get(), POLLIN, 0}, {master.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    char events[4096];
    while (read(changes.get(), events, sizeof(events)) > 0) {
    }
    if (fds[1].revents != 0) {
      return PrintAll(printer, wanted, /*follow=*/true);
    }
  }
}

}  // namespace

int RunLogs(const std::vector<std::string>& args) {
  FlagSet set("elasticdl logs", "Shows the logs of a job's pods.");
  std::string job_name;
  std::string state_dir = DefaultStateDir();
  bool follow = false;
  bool previous = false;
  std::vector<std::string> pods;
  set.Add("job_name", &job_name,
          Info(kGroup, "The job; default: the one that runs."));
  set.Add("state_dir", &state_dir,
          Info(kGroup, "Where local jobs keep their state."));
  set.Add("follow", &follow, Info(kGroup, "Go on until the job has ended."));
  set.Add("previous", &previous, Info(kGroup, "Of the run before."));
  set.AddPositional("POD", &pods, 0,
                    "master, a pod's name or its end (0, worker-j-0); "
                    "default: all.",
                    1);
  if (const int code = set.ParseOrExitCode(args); code >= 0) return code;
  const auto job = FindJob(state_dir, job_name);
  absl::Status status = job.status();
  if (status.ok()) {
    const std::string wanted = pods.empty() ? "" : pods[0];
    LogPrinter printer(previous ? JoinPath(job->path(), "previous/logs")
                                : job->LogsDir());
    status = follow && !previous ? Follow(*job, printer, wanted)
                                 : PrintAll(printer, wanted, false);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", set.command().c_str(),
               std::string(status.message()).c_str());
  return 1;
}

}  // namespace elasticdl::cli
