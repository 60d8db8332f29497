#include "cluster/follow.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cluster/pod_tracker.h"
#include "elasticdl/cluster/job_objects.h"

namespace elasticdl::cli {
namespace {

using cluster::PodView;

// When a log ends although its container runs: how long to wait for the pod's
// new state before the log is requested again.
constexpr absl::Duration kStateLag = absl::Seconds(3);
// For the log of a container that has ended: its node may be gone too.
constexpr int kLogTries = 3;

// Thread-compatible, except Interrupt, which any thread may call.
class Follower {
 public:
  Follower(kube::Client& client, const FollowOptions& options)
      : client_(client),
        options_(options),
        pod_name_(cluster::MasterName(options.job_name)),
        tracker_(client, cluster::MasterSelector(options.job_name)) {}

  void Interrupt(int signal) {
    signal_ = signal;
    cancel_.Cancel();
    tracker_.Interrupt();
  }

  int Run() {
    while (true) {
      const PodTracker::Snapshot now = tracker_.Get();
      if (signal_ != 0) return Detach();
      TellTrouble(now.trouble);
      const auto it = now.pods.find(pod_name_);
      const bool there = it != now.pods.end() && it->second.uid == options_.uid;
      if (now.synced && !there) return TellGone(now);
      if (there) {
        const PodView& pod = it->second;
        TellWaiting(pod);
        if (HasNewLog(pod)) {
          Stream(pod);
          // Wait for the state after the end of the log.
          if (!complete_) tracker_.WaitChange(now.version, kStateLag);
          continue;
        }
        if (pod.Ended()) return TellEnd(pod);
      }
      tracker_.WaitChange(now.version, absl::InfiniteDuration());
    }
  }

 private:
  bool HasNewLog(const PodView& pod) const {
    return pod.started && (pod.restarts != run_ || !complete_);
  }

  // Copies the container's log from where it stopped the last time.
  void Stream(const PodView& pod) {
    if (pod.restarts != run_) {
      run_ = pod.restarts;
      printed_ = 0;
      failures_ = 0;
    }
    kube::Client::LogOptions log;
    log.container = "master";
    log.follow = true;
    size_t skip = printed_;
    const absl::Status status =
        client_.Logs(pod_name_, log, &cancel_, [&](absl::string_view bytes) {
          const size_t known = std::min(skip, bytes.size());
          skip -= known;
          const absl::string_view fresh = bytes.substr(known);
          std::fwrite(fresh.data(), 1, fresh.size(), stdout);
          std::fflush(stdout);
          printed_ += fresh.size();
          return true;
        });
    if (!status.ok() && !pod.running && ++failures_ == kLogTries) {
      Print(absl::StrCat("no log of the master: ", status.message()));
    }
    // Complete if the container had ended before the request.
    complete_ = !pod.running && (status.ok() || failures_ >= kLogTries);
  }

  void Print(const std::string& words) const {
    std::fprintf(stderr, "%s: %s\n", options_.command.c_str(), words.c_str());
  }

  void TellTrouble(const absl::Status& trouble) {
    if (trouble == trouble_) return;
    trouble_ = trouble;
    Print(trouble.ok()
              ? "the cluster answers again"
              : absl::StrCat("the cluster does not answer (", trouble.message(),
                             "); the job is not affected"));
  }

  void TellWaiting(const PodView& pod) {
    if (pod.restarts > told_restarts_) {
      told_restarts_ = pod.restarts;
      const std::string how =
          pod.exit_code < 0
              ? "has ended"
              : absl::StrCat("ended with exit code ", pod.exit_code);
      Print(absl::StrCat("the master ", how, pod.end_reason.empty() ? "" : ", ",
                         pod.end_reason,
                         "; Kubernetes starts it again (restart ", pod.restarts,
                         ")"));
    }
    if (pod.waiting.empty() || pod.waiting == waiting_) return;
    waiting_ = pod.waiting;
    Print(absl::StrCat("the master is pending: ", pod.waiting));
  }

  // `elasticdl stop` removes the pod as soon as the job has ended.
  int TellGone(const PodTracker::Snapshot& now) const {
    const auto last = now.gone.find(pod_name_);
    if (last != now.gone.end() && last->second.uid == options_.uid &&
        !last->second.outcome.empty()) {
      return TellEnd(last->second);
    }
    Print(absl::StrCat("the master pod of job ", options_.job_name,
                       " has been deleted, and the job with it"));
    return 1;
  }

  int TellEnd(const PodView& pod) const {
    const int code = pod.ExitCode();
    std::string words = absl::StrCat("job ", options_.job_name, " ",
                                     code == 0 ? "succeeded" : pod.State());
    for (const std::string* part : {&pod.outcome_message, &pod.end_reason}) {
      if (!part->empty()) absl::StrAppend(&words, ": ", *part);
    }
    if (code != 0) absl::StrAppend(&words, " (exit code ", code, ")");
    const std::string job =
        absl::StrCat(" --job_name=", options_.job_name,
                     " --namespace=", client_.namespace_name());
    Print(words);
    if (pod.deleting) {
      std::fprintf(stderr,
                   "its master pod is deleted, and with it all its pods, their "
                   "logs, its Service and its Secret\n");
      return code;
    }
    std::fprintf(stderr,
                 "its pods stay for their logs (elasticdl logs%s); elasticdl "
                 "stop%s removes them\n",
                 job.c_str(), job.c_str());
    return code;
  }

  int Detach() const {
    std::fprintf(stderr, "\ndetached; job %s keeps running\n%s",
                 options_.job_name.c_str(),
                 ComeBack(options_.job_name, client_.namespace_name()).c_str());
    return 128 + signal_;
  }

  kube::Client& client_;
  const FollowOptions options_;
  const std::string pod_name_;
  kube::Cancellation cancel_;
  std::atomic<int> signal_{0};
  // The run of the container whose log was shown last, and how much of it.
  int64_t run_ = -1;
  size_t printed_ = 0;
  bool complete_ = false;
  int failures_ = 0;
  // What was printed last.
  int64_t told_restarts_ = 0;
  std::string waiting_;
  absl::Status trouble_;
  PodTracker tracker_;
};

}  // namespace

int FollowJob(kube::Client& client, const FollowOptions& options,
              process::SignalWatcher& signals) {
  Follower follower(client, options);
  signals.Start([&](int signal) { follower.Interrupt(signal); });
  const int code = follower.Run();
  signals.Stop();
  return code;
}

std::string ComeBack(const std::string& job_name,
                     const std::string& name_space) {
  const std::string job =
      absl::StrCat(" --job_name=", job_name, " --namespace=", name_space);
  return absl::StrCat("  elasticdl top", job, "\n  elasticdl logs", job,
                      " --follow master\n  elasticdl stop", job,
                      "\n  kubectl get pods -l elasticdl_job_name=", job_name,
                      " -n ", name_space, "\n");
}

}  // namespace elasticdl::cli
