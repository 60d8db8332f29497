// The logs of a job on this machine.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "local/client.h"

namespace elasticdl::cli {
namespace {

constexpr absl::string_view kSuffix = ".log";

// Copies log files to standard output from where it stopped the last time.
class LogPrinter {
 public:
  explicit LogPrinter(std::string folder) : folder_(std::move(folder)) {}

  // Names of the pods that have a log and match.
  std::vector<std::string> Match(const std::string& wanted) const {
    std::vector<std::string> pods;
    const auto files = ListDirectory(folder_);
    if (!files.ok()) return pods;
    for (absl::string_view file : *files) {
      if (!absl::ConsumeSuffix(&file, kSuffix)) continue;
      if (MatchesPod(file, wanted)) pods.emplace_back(file);
    }
    std::sort(pods.begin(), pods.end(), PodComesBefore);
    return pods;
  }

  // `with_names`: a heading whenever the pod changes.
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

// Waits until the job has ended.
absl::Status Follow(const jobdir::JobDir& job, LogPrinter& printer,
                    const std::string& wanted) {
  const Fd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_add_watch(changes.get(), job.LogsDir().c_str(),
                        IN_MODIFY | IN_CREATE) < 0) {
    return ErrnoToStatus(errno, absl::StrCat("watch ", job.LogsDir()));
  }
  const Fd end = WatchJobEnd(job);
  while (true) {
    ELASTICDL_RETURN_IF_ERROR(PrintAll(printer, wanted, /*follow=*/true));
    if (!end.valid()) return absl::OkStatus();
    pollfd fds[] = {{changes.get(), POLLIN, 0}, {end.get(), POLLIN, 0}};
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

absl::Status PrintLocalLogs(const jobdir::JobDir& job,
                            const LogRequest& request) {
  LogPrinter printer(request.previous ? JoinPath(job.path(), "previous/logs")
                                      : job.LogsDir());
  return request.follow && !request.previous
             ? Follow(job, printer, request.pod)
             : PrintAll(printer, request.pod, false);
}

}  // namespace elasticdl::cli
