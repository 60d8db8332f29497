// A job of an experiment, or a peer, on this machine.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "experiment/live_job.h"
#include "experiment/tailed_file.h"
#include "local/client.h"

namespace elasticdl::cli {
namespace {

using experiment::ActionKind;
using experiment::JobPod;

// Thread-compatible.
class JobHere : public LiveJob {
 public:
  JobHere(const LiveJobOptions& options, process::Process process,
          TailedFile events)
      : LiveJob(options, std::move(process)), events_(std::move(events)) {}

  int events_fd() const override { return events_.fd(); }

  void ReadEvents() override {
    rest_ += events_.ReadNew();
    size_t begin = 0;
    for (size_t end = rest_.find('\n'); end != std::string::npos;
         end = rest_.find('\n', begin)) {
      view_.OnLine(absl::string_view(rest_).substr(begin, end - begin));
      begin = end + 1;
    }
    rest_.erase(0, begin);
    WatchPods();
  }

  absl::StatusOr<double> Deliver(
      const experiment::Delivery& delivery) override {
    if (delivery.signal == 0) {
      const bool servers = delivery.kind == ActionKind::kServers;
      ELASTICDL_RETURN_IF_ERROR(
          Scale(servers ? 0 : delivery.target, servers ? delivery.target : 0));
    }
    for (const JobPod& one : delivery.pods) {
      const auto pod = pods_.find(one.pid);
      if (pod == pods_.end()) continue;
      syscall(SYS_pidfd_send_signal, pod->second.get(), delivery.signal,
              nullptr, 0);
    }
    // When the signal was sent, not when the loop woke up.
    return WallSeconds();
  }

  absl::Status Scale(int64_t workers, int64_t servers) override {
    if (options_.peer != experiment::kElasticdl) {
      return absl::UnimplementedError(
          absl::StrCat(options_.peer, " cannot change its number of workers"));
    }
    const jobdir::JobDir dir(PathOf("state"), options_.name);
    const std::string query = workers > 0
                                  ? absl::StrCat("num_workers=", workers)
                                  : absl::StrCat("num_ps_pods=", servers);
    return HttpPost(dir, absl::StrCat("/api/v1/scale?", query)).status();
  }

  void Stop() override {
    if (reaped()) return;
    kill(process_.pid, std::exchange(asked_, true) ? SIGKILL : SIGTERM);
  }

 private:
  void WatchPods() {
    std::vector<JobPod> pods = view_.Workers();
    for (JobPod& pod : view_.Servers()) pods.push_back(std::move(pod));
    for (const JobPod& pod : pods) {
      if (pods_.count(pod.pid) == 0) {
        pods_[pod.pid] = process::OpenPidfd(pod.pid);
      }
    }
    for (auto it = pods_.begin(); it != pods_.end();) {
      pollfd fd = {it->second.get(), POLLIN, 0};
      if (it->second.valid() && poll(&fd, 1, 0) == 0) {
        ++it;
        continue;
      }
      view_.OnProcessEnded(it->first);
      it = pods_.erase(it);
    }
  }

  TailedFile events_;
  // The beginning of a line.
  std::string rest_;
  // Of workers and servers, so that no signal reaches a process that has got
  // the id of one of them later.
  std::map<pid_t, Fd> pods_;
  bool asked_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LiveJob>> StartJobHere(
    const LiveJobOptions& options) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.folder));
  ELASTICDL_ASSIGN_OR_RETURN(
      TailedFile events,
      TailedFile::Create(JoinPath(options.folder, "events.jsonl")));
  process::Options start;
  start.argv = JobCommandLine(options);
  start.environment = process::InheritedEnvironment();
  start.log_file = JoinPath(options.folder, "output.log");
  ELASTICDL_ASSIGN_OR_RETURN(process::Process started, process::Start(start));
  return std::make_unique<JobHere>(options, std::move(started),
                                   std::move(events));
}

}  // namespace elasticdl::cli
