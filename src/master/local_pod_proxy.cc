// The part of the local backend for processes that are proxies of pods.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "local_pod_loop.h"

namespace elasticdl::master {
namespace {

// How long a proxy has to kill its pod.
constexpr absl::Duration kProxyPatience = absl::Seconds(10);

}  // namespace

absl::Status LocalPodBackend::Loop::StartProxy(const PodSpec& spec,
                                               process::Options options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "pipe");
  Fd output(ends[0]);
  const Fd write_end(ends[1]);
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  options.argv = options_.proxy->start(spec);
  options.output_fd = write_end.get();
  ELASTICDL_ASSIGN_OR_RETURN(process::Process started, process::Start(options));
  Pod& pod = pods_[spec.name];
  pod.output = std::move(output);
  pod.options = std::move(options);
  Started(spec.name, std::move(started));
  return absl::OkStatus();
}

void LocalPodBackend::Loop::ReadProxies() {
  for (auto& [name, pod] : pods_) ReadProxy(name, pod);
}

// Reports that the pod runs when it has said so. What it says later is dropped.
void LocalPodBackend::Loop::ReadProxy(const std::string& name, Pod& pod) {
  char bytes[512];
  ssize_t n = -1;
  while (pod.output.valid() &&
         ((n = read(pod.output.get(), bytes, sizeof(bytes))) > 0 ||
          (n < 0 && errno == EINTR))) {
    if (n < 0 || pod.place.has_value()) continue;
    pod.line.append(bytes, static_cast<size_t>(n));
    FindPlace(name, pod);
  }
  if (n == 0) pod.output.Reset();
}

// A prolog of the cluster may print any amount before the pod does.
void LocalPodBackend::Loop::FindPlace(const std::string& name, Pod& pod) {
  constexpr size_t kLongestLine = 4096;
  size_t end = 0;
  while ((end = pod.line.find('\n')) != std::string::npos) {
    const std::string line = pod.line.substr(0, end);
    pod.line.erase(0, end + 1);
    auto place = options_.proxy->parse(line);
    if (!place.ok()) {
      LogInfo(name, " says before it runs: ", line);
      continue;
    }
    pod.line.clear();
    pod.place = *std::move(place);
    pod.waits_at = absl::InfiniteFuture();
    PodEvent event;
    event.name = name;
    event.phase = PodPhase::kRunning;
    event.pid = pod.place->pid;
    Emit(event);
    return;
  }
  // Not the line that is looked for.
  if (pod.line.size() > kLongestLine) pod.line.erase(0, kLongestLine);
}

void LocalPodBackend::Loop::TellWaiting() {
  const absl::Time now = Clock::Real().Now();
  for (auto& [name, pod] : pods_) {
    if (pod.waits_at > now) continue;
    pod.waits_at = absl::InfiniteFuture();
    PodEvent event;
    event.name = name;
    event.message = options_.proxy->waiting;
    Emit(event);
  }
}

void LocalPodBackend::Loop::KillProxy(Pod& pod) {
  kill(pod.process.pid, SIGTERM);
  kill(pod.process.pid, SIGCONT);
  pod.killing = true;
  // Nobody is told any more, so nobody must be woken for it.
  pod.waits_at = absl::InfiniteFuture();
  pod.kill_at = Clock::Real().Now() + kProxyPatience;
}

void LocalPodBackend::Loop::TerminateProxy(bool first, Pod& pod) {
  if (pod.killing) return;
  // There is nobody yet who could end in an orderly way.
  if (!pod.place.has_value() || pod.grace <= absl::ZeroDuration()) {
    return KillProxy(pod);
  }
  pod.kill_at = std::min(pod.kill_at, Clock::Real().Now() + pod.grace);
  if (first) RunHelper(pod, options_.proxy->terminate(pod.place->id));
}

void LocalPodBackend::Loop::KillBehindProxy(const Pod& pod) {
  if (pod.place.has_value()) {
    RunHelper(pod, options_.proxy->kill(pod.place->id));
  }
}

void LocalPodBackend::Loop::KillAllProxies() {
  for (auto& [name, pod] : pods_) KillProxy(pod);
  while (!pods_.empty()) {
    Wait();
    ReadProxies();
    ReapEnded();
    KillOverdue();
  }
  // They would end with this process.
  helpers_end_ = Clock::Real().Now() + kProxyPatience;
  while (!helpers_.empty() && Clock::Real().Now() < helpers_end_) {
    Wait();
    ReapEnded();
  }
}

void LocalPodBackend::Loop::RunHelper(const Pod& pod,
                                      std::vector<std::string> argv) {
  process::Options command = pod.options;
  command.output_fd = -1;
  command.argv = std::move(argv);
  auto started = process::Start(command);
  if (started.ok()) {
    helpers_.push_back(*std::move(started));
  } else {
    LogWarning(started.status().message());
  }
}

}  // namespace elasticdl::master
