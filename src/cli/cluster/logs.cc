#include "cluster/logs.h"

#include <algorithm>
#include <cstdio>
#include <list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cluster/pod_tracker.h"
#include "elasticdl/cluster/job_objects.h"
#include "elasticdl/cluster/pod_view.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"

namespace elasticdl::cli {
namespace {

using cluster::PodView;

// After the master's end, how long the other pods' last lines may take.
constexpr absl::Duration kLastWords = absl::Seconds(10);

// Prints whole lines of several pods. Thread-safe.
class LinePrinter {
 public:
  explicit LinePrinter(bool with_names) : with_names_(with_names) {}

  void Print(const std::string& pod, absl::string_view bytes) {
    MutexLock lock(mu_);
    std::string& rest = rests_[pod];
    absl::StrAppend(&rest, bytes);
    const size_t end = rest.rfind('\n');
    if (end == std::string::npos) return;
    Write(pod, absl::string_view(rest).substr(0, end + 1));
    rest.erase(0, end + 1);
  }
  // The last line of a pod may lack its line end.
  void Finish(const std::string& pod) {
    MutexLock lock(mu_);
    std::string& rest = rests_[pod];
    if (!rest.empty()) Write(pod, absl::StrCat(rest, "\n"));
    rest.clear();
  }

 private:
  void Write(const std::string& pod, absl::string_view lines)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (with_names_ && last_ != pod) std::printf("==> %s <==\n", pod.c_str());
    last_ = pod;
    std::fwrite(lines.data(), 1, lines.size(), stdout);
    std::fflush(stdout);
  }

  const bool with_names_;
  Mutex mu_;
  std::map<std::string, std::string> rests_ ABSL_GUARDED_BY(mu_);
  std::string last_ ABSL_GUARDED_BY(mu_);
};

bool Matches(const PodView& pod, const std::string& wanted) {
  if (pod.name == wanted) return true;
  return MatchesPod(pod.type == "master" ? "master" : pod.name, wanted);
}

absl::Status PrintOnce(kube::Client& client, const std::string& job_name,
                       const LogRequest& request) {
  ELASTICDL_ASSIGN_OR_RETURN(
      const kube::Json list,
      client.List(kube::Pods(), cluster::JobSelector(job_name)));
  std::vector<std::string> all;
  std::vector<PodView> pods;
  for (const kube::Json& item : kube::ListAt(list, "/items")) {
    PodView pod = cluster::ViewPod(item);
    all.push_back(pod.name);
    if (Matches(pod, request.pod)) pods.push_back(std::move(pod));
  }
  if (pods.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no pod '", request.pod, "' of job ", job_name,
                     "; there are: ", absl::StrJoin(all, ", ")));
  }
  std::sort(pods.begin(), pods.end(), [](const PodView& a, const PodView& b) {
    return PodComesBefore(a.name, b.name);
  });
  LinePrinter printer(pods.size() > 1 || request.pod.empty());
  for (const PodView& pod : pods) {
    if (!pod.started) {
      std::fprintf(stderr, "%s has no log yet: %s\n", pod.name.c_str(),
                   (pod.waiting.empty() ? pod.State() : pod.waiting).c_str());
      continue;
    }
    kube::Client::LogOptions log;
    log.previous = request.previous;
    const absl::Status status =
        client.Logs(pod.name, log, nullptr, [&](absl::string_view bytes) {
          printer.Print(pod.name, bytes);
          return true;
        });
    printer.Finish(pod.name);
    if (!status.ok()) return Annotate(status, pod.name);
  }
  return absl::OkStatus();
}

// One thread per pod that has a log. Thread-compatible.
class LogFollower {
 public:
  LogFollower(kube::Client& client, const std::string& job_name,
              const LogRequest& request)
      : client_(client),
        wanted_(request.pod),
        master_(cluster::MasterName(job_name)),
        printer_(/*with_names=*/request.pod.empty()),
        tracker_(client, cluster::JobSelector(job_name)) {}
  ~LogFollower() { cancel_.Cancel(); }

  absl::Status Run() {
    while (true) {
      const PodTracker::Snapshot now = tracker_.Get();
      if (absl::IsPermissionDenied(now.trouble) ||
          absl::IsUnauthenticated(now.trouble)) {
        return now.trouble;
      }
      for (const auto& [name, pod] : now.pods) {
        if (pod.started && Matches(pod, wanted_)) Start(pod);
      }
      if (now.synced && IsOver(now)) return Finish();
      tracker_.WaitChange(now.version, absl::InfiniteDuration());
    }
  }

 private:
  void Start(const PodView& pod) {
    // Once for each start of the container.
    if (!started_.emplace(pod.uid, pod.restarts).second) return;
    {
      MutexLock lock(mu_);
      ++open_;
    }
    threads_.emplace_back("log", [this, name = pod.name] {
      kube::Client::LogOptions log;
      log.follow = true;
      const absl::Status status =
          client_.Logs(name, log, &cancel_, [&](absl::string_view bytes) {
            printer_.Print(name, bytes);
            return true;
          });
      printer_.Finish(name);
      if (!status.ok() && !cancel_.cancelled()) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(),
                     std::string(status.message()).c_str());
      }
      {
        MutexLock lock(mu_);
        --open_;
      }
      closed_.NotifyAll();
    });
  }

  // None of the requested pods will write any more.
  bool IsOver(const PodTracker::Snapshot& now) const {
    const auto master = now.pods.find(master_);
    if (master == now.pods.end() || master->second.Ended()) return true;
    if (wanted_.empty() || started_.empty()) return false;
    for (const auto& [name, pod] : now.pods) {
      if (Matches(pod, wanted_) && !pod.Ended()) return false;
    }
    return true;
  }

  absl::Status Finish() {
    const bool any = !started_.empty();
    {
      MutexLock lock(mu_);
      while (open_ > 0 && closed_.WaitFor(mu_, kLastWords)) {
      }
    }
    cancel_.Cancel();
    threads_.clear();
    if (any) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat("no pod '", wanted_, "' has a log"));
  }

  kube::Client& client_;
  const std::string wanted_;
  const std::string master_;
  LinePrinter printer_;
  kube::Cancellation cancel_;
  std::set<std::pair<std::string, int64_t>> started_;
  Mutex mu_;
  CondVar closed_;
  int open_ ABSL_GUARDED_BY(mu_) = 0;
  PodTracker tracker_;
  // Last: they use the others. Joined after cancel_ by the destructor.
  std::list<Thread> threads_;
};

}  // namespace

absl::Status PrintClusterLogs(kube::Client& client, const std::string& job_name,
                              const LogRequest& request) {
  if (!request.follow || request.previous) {
    return PrintOnce(client, job_name, request);
  }
  return LogFollower(client, job_name, request).Run();
}

}  // namespace elasticdl::cli
