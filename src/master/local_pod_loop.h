// The thread of LocalPodBackend. local_pod_backend.cc handles processes,
// local_pod_proxy.cc proxies of pods that run elsewhere.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/common/thread.h"
#include "elasticdl/fork_server.h"
#include "elasticdl/process.h"
#include "local_pod_backend.h"

namespace elasticdl::master {

// Commands of other threads run on the loop's thread between two waits, so the
// pods need no lock. Thread-safe.
class LocalPodBackend::Loop {
 public:
  Loop(Options options, PodEventSink sink, Fd wakeup)
      : options_(std::move(options)),
        sink_(std::move(sink)),
        wakeup_(std::move(wakeup)),
        thread_("pods", [this] { Run(); }) {}

  // Runs `command` on the thread and returns its status.
  absl::Status Call(const std::function<absl::Status()>& command);
  void Stop();

  // On the thread only:
  absl::Status Create(const PodSpec& spec);
  absl::Status Delete(const std::string& name, absl::Duration grace);
  absl::Status Adopt(const std::string& name, pid_t pid);

 private:
  struct Pod {
    // No process until the fork server has answered.
    process::Process process;
    process::Options options;
    uint64_t request = 0;
    bool deleted = false;
    absl::Duration grace = absl::InfiniteDuration();
    // When SIGKILL follows SIGTERM. For a deleted pod without a process: when
    // the fork server is given up.
    absl::Time kill_at = absl::InfiniteFuture();

    // Of a proxy only: the standard output, what has been read of the first
    // line, and what that says once it is there.
    Fd output;
    std::string line;
    std::optional<PodProxy::Place> place;
    // When to tell that it waits.
    absl::Time waits_at = absl::InfiniteFuture();
    // It was told to kill its pod.
    bool killing = false;

    bool starting() const { return process.pid == 0; }
  };
  // Waits on the caller's stack for its command to be run.
  struct PendingCall {
    const std::function<absl::Status()>* command;
    absl::Status status;
    bool done = false;
  };

  void Run();
  void RunCalls();
  void Wait();
  bool AskForkServer(const PodSpec& spec, const process::Options& options);
  void ReadAnswers();
  void Started(const std::string& name, absl::StatusOr<process::Process> made);
  void ForkServerEnded();
  absl::Status StartProxy(const PodSpec& spec, process::Options options);
  void ReadProxies();
  void ReadProxy(const std::string& name, Pod& pod);
  void FindPlace(const std::string& name, Pod& pod);
  void TerminateProxy(bool first, Pod& pod);
  void KillProxy(Pod& pod);
  // The process was killed, and the pod may still run.
  void KillBehindProxy(const Pod& pod);
  void RunHelper(const Pod& pod, std::vector<std::string> argv);
  void KillAllProxies();
  void TellWaiting();
  void Terminate(bool first, Pod* pod);
  void ReapEnded();
  int EndOf(const process::Process& process) const;
  PodEvent Reap(const std::string& name, const Pod& pod) const;
  void KillOverdue();
  void KillAll();
  int PollTimeoutMs() const;
  void Emit(const PodEvent& event) { sink_(event); }
  bool OnThread() const { return std::this_thread::get_id() == thread_id_; }

  const Options options_;
  const PodEventSink sink_;
  const Fd wakeup_;

  // Only the thread uses these.
  std::map<std::string, Pod> pods_;
  std::unique_ptr<process::ForkServer> fork_server_;
  // Not tried again after one ended without any answer.
  bool fork_server_works_ = true;
  uint64_t last_request_ = 0;
  // Process groups of ended pods, whose remaining processes must be reaped.
  std::set<pid_t> orphans_;
  // Commands of the proxy that have not ended, and until when they are waited
  // for.
  std::vector<process::Process> helpers_;
  absl::Time helpers_end_ = absl::InfiniteFuture();
  std::thread::id thread_id_;

  Mutex mu_;
  CondVar changed_;
  std::deque<PendingCall*> calls_ ABSL_GUARDED_BY(mu_);
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Serialises Stop with itself; Join is not thread-safe.
  Mutex stop_mu_;
  Thread thread_;  // last: it uses everything above
};

}  // namespace elasticdl::master
