// Pods as processes of this machine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pod_backend.h"
#include "pod_proxy.h"

namespace elasticdl::master {

// Thread-safe. One thread forks, watches and reaps all processes, so the death
// signal that ties them to this process (which follows the forking *thread*)
// fires only when this process ends, however it ends. Pods of the program
// Options::fork_server are forked from a process of it that has already loaded
// its libraries; if that fails, they are started like the others. With
// Options::parent they are tied to that process instead.
//
// A pod leads a group of its own: a terminal's Ctrl-C does not reach
// it. Delete sends SIGTERM to the leader, as a kubelet does. When the leader
// has ended, the rest of its process group is killed, as at the end of a
// container.
class LocalPodBackend : public PodBackend {
 public:
  struct Options {
    // KEY=VALUE of every pod; normally the environment of this process.
    std::vector<std::string> environment;
    // A program that can be a process::ForkServer; empty = none.
    std::string fork_server;
    // How long a deleted pod waits for it; it may still be loading its
    // libraries from a cold disk.
    absl::Duration fork_server_patience = absl::Seconds(30);
    // The processes are proxies of pods that run elsewhere. Not together with
    // a fork server.
    std::optional<PodProxy> proxy;
    // The parent of this process, if pods are to be its children and outlive
    // this process (elasticdl/parent_reaper.h); 0 = they are this process's.
    pid_t parent = 0;
    // Where it is told that it may wait for one.
    int ended_fd = -1;
  };

  // Starts the thread. INTERNAL, RESOURCE_EXHAUSTED, … if the kernel refuses a
  // resource.
  static absl::StatusOr<std::unique_ptr<LocalPodBackend>> Start(
      Options options, PodEventSink sink);

  ~LocalPodBackend() override;

  // Goes on with a process of the master before, which may have ended. With
  // Options::parent only. NOT_FOUND: there is no such process, or its number
  // belongs to another one by now.
  absl::Status Adopt(const std::string& name, pid_t pid);

  absl::Status Create(const PodSpec& spec) override;
  absl::Status Delete(const std::string& name, absl::Duration grace) override;
  void Stop() override;

 private:
  class Loop;
  explicit LocalPodBackend(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
};

}  // namespace elasticdl::master
