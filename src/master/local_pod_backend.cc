#include "local_pod_backend.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/parent_reaper.h"
#include "local_pod_loop.h"

namespace elasticdl::master {

namespace {

void Signal(int eventfd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(eventfd, &one, sizeof(one));
}

// The wait status of a child; it stays a zombie.
int StatusOfChild(int pidfd) {
  siginfo_t info = {};
  const auto id = static_cast<id_t>(pidfd);
  while (waitid(P_PIDFD, id, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  return info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0)
                                    : info.si_status;
}

}  // namespace

absl::Status LocalPodBackend::Loop::Call(
    const std::function<absl::Status()>& command) {
  {
    MutexLock lock(mu_);
    while (!started_) changed_.Wait(mu_);
  }
  if (OnThread()) return command();
  PendingCall call{&command, absl::OkStatus()};
  MutexLock lock(mu_);
  if (stopping_) {
    return absl::FailedPreconditionError("the pod backend is stopped");
  }
  calls_.push_back(&call);
  Signal(wakeup_.get());
  while (!call.done) changed_.Wait(mu_);
  return call.status;
}

void LocalPodBackend::Loop::Stop() {
  MutexLock stop_lock(stop_mu_);
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  Signal(wakeup_.get());
  thread_.Join();
}

void LocalPodBackend::Loop::Run() {
  thread_id_ = std::this_thread::get_id();
  {
    MutexLock lock(mu_);
    started_ = true;
  }
  changed_.NotifyAll();
  while (true) {
    RunCalls();
    {
      MutexLock lock(mu_);
      if (stopping_ && calls_.empty()) break;
    }
    Wait();
    ReadAnswers();
    ReadProxies();
    ReapEnded();
    KillOverdue();
    TellWaiting();
  }
  KillAll();
}

void LocalPodBackend::Loop::RunCalls() {
  while (true) {
    PendingCall* call = nullptr;
    {
      MutexLock lock(mu_);
      if (calls_.empty()) return;
      call = calls_.front();
      calls_.pop_front();
    }
    absl::Status status = (*call->command)();
    {
      MutexLock lock(mu_);
      call->status = std::move(status);
      call->done = true;
    }
    changed_.NotifyAll();
  }
}

int LocalPodBackend::Loop::PollTimeoutMs() const {
  absl::Time next = helpers_end_;
  for (const auto& [name, pod] : pods_) {
    next = std::min({next, pod.kill_at, pod.waits_at});
  }
  if (next == absl::InfiniteFuture()) return -1;
  const absl::Duration left = next - Clock::Real().Now();
  // Rounded up, so that the loop does not spin in the last millisecond.
  const int64_t ms = absl::ToInt64Milliseconds(left) + 1;
  return static_cast<int>(
      std::clamp<int64_t>(ms, 0, absl::ToInt64Milliseconds(absl::Hours(1))));
}

void LocalPodBackend::Loop::Wait() {
  std::vector<pollfd> fds = {{wakeup_.get(), POLLIN, 0}};
  for (const auto& [name, pod] : pods_) {
    if (!pod.starting()) fds.push_back({pod.process.pidfd.get(), POLLIN, 0});
    if (pod.output.valid()) fds.push_back({pod.output.get(), POLLIN, 0});
  }
  for (const process::Process& helper : helpers_) {
    fds.push_back({helper.pidfd.get(), POLLIN, 0});
  }
  if (fork_server_ != nullptr) fds.push_back({fork_server_->fd(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), PollTimeoutMs()) <= 0) return;
  if (fds[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(wakeup_.get(), &count, 8);
  }
}

// The wait status of a process that has ended or is about to. Kills the rest of
// its group, then lets it be reaped (until then its pid cannot be reused).
int LocalPodBackend::Loop::EndOf(const process::Process& process) const {
  if (options_.parent == 0) {
    const int status = StatusOfChild(process.pidfd.get());
    // What is left of a proxy's group ends the pod.
    if (!options_.proxy.has_value()) kill(-process.pid, SIGKILL);
    while (waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
  pollfd fd = {process.pidfd.get(), POLLIN, 0};
  while (poll(&fd, 1, -1) < 0 && errno == EINTR) {
  }
  // Nobody is blamed for what nobody knows.
  const int status = process::ExitStatusOf(process.pid).value_or(SIGKILL);
  kill(-process.pid, SIGKILL);
  process::TellEnded(options_.ended_fd, process.pid);
  return status;
}

// The final event.
PodEvent LocalPodBackend::Loop::Reap(const std::string& name,
                                     const Pod& pod) const {
  const int status = EndOf(pod.process);
  PodEvent event;
  event.name = name;
  event.pid = pod.process.pid;
  if (WIFEXITED(status)) {
    event.exit_code = WEXITSTATUS(status);
  } else {
    event.signal = WTERMSIG(status);
  }
  // What was to start it could not: Slurm refuses steps while its controller is
  // away or the job is being requeued.
  constexpr int kNoStep = 1;
  if (options_.proxy.has_value() && !pod.place.has_value() && !pod.deleted &&
      event.exit_code == kNoStep) {
    event.create_error = absl::UnavailableError(
        absl::StrCat(pod.options.argv[0], " could not start it, see its log"));
    event.pid = 0;
  } else if (pod.deleted) {
    event.phase = PodPhase::kDeleted;
    event.reason = PodEndReason::kDeleted;
  } else if (event.exit_code == 0) {
    event.phase = PodPhase::kSucceeded;
  } else {
    event.phase = PodPhase::kFailed;
    event.reason = PodEndReason::kError;
  }
  return event;
}

void LocalPodBackend::Loop::ReapEnded() {
  std::vector<PodEvent> events;
  for (auto it = pods_.begin(); it != pods_.end();) {
    pollfd fd = {it->second.process.pidfd.get(), POLLIN, 0};
    if (it->second.starting() || poll(&fd, 1, 0) != 1) {
      ++it;
      continue;
    }
    // What it said last comes before its end.
    ReadProxy(it->first, it->second);
    events.push_back(Reap(it->first, it->second));
    if (options_.proxy.has_value() && events.back().signal != 0) {
      KillBehindProxy(it->second);
    }
    if (fork_server_ != nullptr && options_.parent == 0) {
      orphans_.insert(it->second.process.pid);
    }
    it = pods_.erase(it);
  }
  for (auto it = orphans_.begin(); it != orphans_.end();) {
    const pid_t reaped = waitpid(-*it, nullptr, WNOHANG);
    if (reaped < 0) {
      it = orphans_.erase(it);
    } else if (reaped == 0) {
      ++it;
    }
  }
  helpers_.erase(std::remove_if(helpers_.begin(), helpers_.end(),
                                [](const process::Process& helper) {
                                  return waitpid(helper.pid, nullptr,
                                                 WNOHANG) != 0;
                                }),
                 helpers_.end());
  for (PodEvent& event : events) Emit(event);
}

void LocalPodBackend::Loop::KillOverdue() {
  const absl::Time now = Clock::Real().Now();
  for (auto& [name, pod] : pods_) {
    if (pod.kill_at > now) continue;
    pod.kill_at = absl::InfiniteFuture();
    if (pod.starting()) {
      LogWarning("the process that forks workers does not answer: killed");
      fork_server_->Kill();
      return ReadAnswers();
    }
    LogWarning(name, " did not end after SIGTERM: killed");
    if (!options_.proxy.has_value()) {
      kill(-pod.process.pid, SIGKILL);
    } else if (!pod.killing) {
      KillProxy(pod);
    } else {
      kill(pod.process.pid, SIGKILL);
    }
  }
}

void LocalPodBackend::Loop::KillAll() {
  for (auto& [name, pod] : pods_) pod.deleted = true;
  if (fork_server_ != nullptr) {
    fork_server_->Kill();
    ReadAnswers();
  }
  if (options_.proxy.has_value()) KillAllProxies();
  for (auto& [name, pod] : pods_) kill(-pod.process.pid, SIGKILL);
  std::map<std::string, Pod> pods = std::move(pods_);
  pods_.clear();
  for (auto& [name, pod] : pods) Emit(Reap(name, pod));
}

absl::Status LocalPodBackend::Loop::Create(const PodSpec& spec) {
  {
    MutexLock lock(mu_);
    // The sink may still call while Stop kills.
    if (stopping_) {
      return absl::FailedPreconditionError("the pod backend is stopped");
    }
  }
  if (pods_.count(spec.name) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("pod ", spec.name));
  }
  process::Options options;
  options.argv = spec.argv;
  options.log_file = spec.log_file;
  options.environment = options_.environment;
  options.parent = options_.parent;
  options.own_session = false;
  for (const auto& [key, value] : spec.env) {
    options.environment.push_back(absl::StrCat(key, "=", value));
  }
  if (options_.proxy.has_value()) return StartProxy(spec, std::move(options));
  if (AskForkServer(spec, options)) return absl::OkStatus();
  absl::StatusOr<process::Process> started = process::Start(options);
  if (!started.ok()) return started.status();
  pods_[spec.name] = Pod();
  Started(spec.name, std::move(started));
  return absl::OkStatus();
}

// False if the pod must be started without the fork server.
bool LocalPodBackend::Loop::AskForkServer(const PodSpec& spec,
                                          const process::Options& options) {
  if (options_.fork_server.empty() || spec.argv.empty() ||
      spec.argv[0] != options_.fork_server) {
    return false;
  }
  if (fork_server_ == nullptr && !fork_server_works_) return false;
  if (fork_server_ == nullptr) {
    auto started = process::ForkServer::Start(
        options_.fork_server, options_.environment, options_.parent);
    // Starting it directly will report what is wrong with the program.
    if (!started.ok()) return false;
    fork_server_ = *std::move(started);
    fork_server_works_ = false;
  }
  const absl::Status asked = fork_server_->Ask(last_request_ + 1, options);
  if (!asked.ok()) {
    LogWarning(asked.message());
    return false;
  }
  Pod& pod = pods_[spec.name];
  pod.options = options;
  pod.request = ++last_request_;
  return true;
}

void LocalPodBackend::Loop::ReadAnswers() {
  while (fork_server_ != nullptr) {
    auto answer = fork_server_->Next();
    if (!answer.ok()) return ForkServerEnded();
    if (!answer->has_value()) return;
    fork_server_works_ = true;
    for (auto& [name, pod] : pods_) {
      if (!pod.starting() || pod.request != (*answer)->request) continue;
      Started(name, std::move((*answer)->process));
      break;
    }
  }
}

// Starts the pods directly for which the fork server gave no process.
void LocalPodBackend::Loop::ForkServerEnded() {
  fork_server_.reset();
  std::vector<std::string> names;
  for (const auto& [name, pod] : pods_) {
    if (pod.starting()) names.push_back(name);
  }
  for (const std::string& name : names) {
    const Pod& pod = pods_[name];
    if (pod.deleted) {
      PodEvent event;
      event.name = name;
      event.phase = PodPhase::kDeleted;
      event.reason = PodEndReason::kDeleted;
      pods_.erase(name);
      Emit(event);
    } else {
      LogInfo("the process that forks workers has ended: ", name,
              " starts without it");
      Started(name, process::Start(pod.options));
    }
  }
}

// Reports that the pod has its process, or cannot get one.
void LocalPodBackend::Loop::Started(const std::string& name,
                                    absl::StatusOr<process::Process> made) {
  PodEvent event;
  event.name = name;
  if (!made.ok()) {
    event.create_error = made.status();
    pods_.erase(name);
    return Emit(event);
  }
  Pod& pod = pods_[name];
  pod.process = *std::move(made);
  event.phase = PodPhase::kRunning;
  event.pid = pod.process.pid;
  pod.kill_at = absl::InfiniteFuture();
  if (options_.proxy.has_value()) {
    event.phase = PodPhase::kPending;
    event.pid = 0;
    pod.waits_at = Clock::Real().Now() + options_.proxy->patience;
  }
  // Delete came first.
  if (pod.deleted) Terminate(true, &pod);
  Emit(event);
}

void LocalPodBackend::Loop::Terminate(bool first, Pod* pod) {
  if (options_.proxy.has_value()) return TerminateProxy(first, *pod);
  if (first) {
    kill(pod->process.pid, SIGTERM);
    // A stopped process would not handle SIGTERM within its grace period.
    kill(pod->process.pid, SIGCONT);
  }
  if (pod->grace <= absl::ZeroDuration()) {
    kill(-pod->process.pid, SIGKILL);
  } else {
    pod->kill_at = std::min(pod->kill_at, Clock::Real().Now() + pod->grace);
  }
}

absl::Status LocalPodBackend::Loop::Delete(const std::string& name,
                                           absl::Duration grace) {
  const auto it = pods_.find(name);
  if (it == pods_.end()) {
    return absl::NotFoundError(absl::StrCat("no pod ", name));
  }
  Pod& pod = it->second;
  const bool first = !pod.deleted;
  pod.deleted = true;
  pod.grace = std::min(pod.grace, grace);
  if (pod.starting()) {
    pod.kill_at = std::min(pod.kill_at,
                           Clock::Real().Now() + options_.fork_server_patience);
  } else {
    Terminate(first, &pod);
  }
  return absl::OkStatus();
}

absl::Status LocalPodBackend::Loop::Adopt(const std::string& name, pid_t pid) {
  process::Process process;
  process.pid = pid;
  process.pidfd = process::OpenPidfd(pid);
  // The parent waits for it only when it is told to, so what has the number now
  // keeps it.
  if (!process.pidfd.valid() || options_.parent == 0 ||
      !process::IsStartedChild(pid, options_.parent)) {
    return absl::NotFoundError(absl::StrCat("no process ", pid, " of ", name));
  }
  pods_[name].process = std::move(process);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LocalPodBackend>> LocalPodBackend::Start(
    Options options, PodEventSink sink) {
  Fd wakeup(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup.valid()) return ErrnoToStatus(errno, "eventfd");
  return std::unique_ptr<LocalPodBackend>(
      new LocalPodBackend(std::make_unique<Loop>(
          std::move(options), std::move(sink), std::move(wakeup))));
}

LocalPodBackend::LocalPodBackend(std::unique_ptr<Loop> loop)
    : loop_(std::move(loop)) {}

LocalPodBackend::~LocalPodBackend() { Stop(); }

absl::Status LocalPodBackend::Adopt(const std::string& name, pid_t pid) {
  return loop_->Call([&] { return loop_->Adopt(name, pid); });
}

absl::Status LocalPodBackend::Create(const PodSpec& spec) {
  return loop_->Call([&] { return loop_->Create(spec); });
}

absl::Status LocalPodBackend::Delete(const std::string& name,
                                     absl::Duration grace) {
  return loop_->Call([&] { return loop_->Delete(name, grace); });
}

void LocalPodBackend::Stop() { loop_->Stop(); }

}  // namespace elasticdl::master
