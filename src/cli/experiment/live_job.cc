#include "experiment/live_job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/jobdir.h"
#include "local/client.h"

namespace elasticdl::cli {
namespace {

using experiment::ActionKind;

std::string FlagOr(const experiment::Settings& flags, const std::string& name,
                   const std::string& otherwise) {
  const auto it = flags.find(name);
  return it == flags.end() ? otherwise : it->second;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_usec) / 1e6;
}

std::vector<std::string> PeerCommandLine(const LiveJobOptions& options) {
  return {
      "/usr/bin/python3",
      flags::ProgramBeside("elasticdl-peer"),
      options.peer,
      absl::StrCat("--workers=", options.workers),
      absl::StrCat("--model=", FlagOr(options.flags, "model_def", "")),
      absl::StrCat("--batch=", FlagOr(options.flags, "minibatch_size", "64")),
      absl::StrCat("--threads=", FlagOr(options.flags, "num_threads", "1")),
      absl::StrCat("--mtbf=", options.mtbf),
      absl::StrCat("--folder=", options.folder)};
}

}  // namespace

double WallSeconds() {
  return static_cast<double>(absl::ToUnixMicros(absl::Now())) / 1e6;
}

std::vector<std::string> JobCommandLine(const LiveJobOptions& options) {
  if (options.peer != experiment::kElasticdl) return PeerCommandLine(options);
  experiment::Settings all = options.flags;
  all["job_name"] = options.name;
  all["num_workers"] = absl::StrCat(options.workers);
  all["state_dir"] = JoinPath(options.folder, "state");
  all["event_log"] = JoinPath(options.folder, "events.jsonl");
  all["ledger_audit"] = JoinPath(options.folder, "audit.jsonl");
  std::vector<std::string> args = {flags::ProgramBeside("elasticdl"), "train"};
  for (const auto& [name, value] : all) {
    args.push_back(
        absl::StrCat("--", name, "=",
                     absl::StrReplaceAll(value, {{"{run}", options.folder}})));
  }
  return args;
}

absl::StatusOr<std::unique_ptr<LiveJob>> LiveJob::Start(
    const LiveJobOptions& options) {
  ELASTICDL_RETURN_IF_ERROR(MakeDirectories(options.folder));
  // It must be there to be watched.
  const std::string events = JoinPath(options.folder, "events.jsonl");
  Fd file(open(events.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create ", events));
  }
  Fd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes.valid() ||
      inotify_add_watch(changes.get(), events.c_str(), IN_MODIFY) < 0) {
    return ErrnoToStatus(errno, absl::StrCat("watch ", events));
  }
  process::Options start;
  start.argv = JobCommandLine(options);
  start.environment = process::InheritedEnvironment();
  start.log_file = JoinPath(options.folder, "output.log");
  ELASTICDL_ASSIGN_OR_RETURN(process::Process started, process::Start(start));
  return std::unique_ptr<LiveJob>(
      new LiveJob(options, std::move(started), std::move(changes)));
}

LiveJob::LiveJob(LiveJobOptions options, process::Process process, Fd changes)
    : options_(std::move(options)),
      process_(std::move(process)),
      changes_(std::move(changes)),
      view_(options_.workers) {}

LiveJob::~LiveJob() {
  if (reaped_) return;
  kill(process_.pid, SIGKILL);
  Reap();
}

void LiveJob::ReadEvents() {
  char notes[4096];
  while (read(changes_.get(), notes, sizeof(notes)) > 0) {
  }
  const std::string path = JoinPath(options_.folder, "events.jsonl");
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[65536];
  while (true) {
    const ssize_t count = pread(file.get(), buffer, sizeof(buffer), read_);
    if (count <= 0) break;
    read_ += count;
    rest_.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end = rest_.find('\n'); end != std::string::npos;
         end = rest_.find('\n', begin)) {
      view_.OnLine(absl::string_view(rest_).substr(begin, end - begin));
      begin = end + 1;
    }
    rest_.erase(0, begin);
  }
  WatchPods();
}

void LiveJob::WatchPods() {
  std::vector<pid_t> pids = view_.WorkerPids();
  for (const pid_t pid : view_.ServerPids()) pids.push_back(pid);
  for (const pid_t pid : pids) {
    if (pods_.count(pid) == 0) pods_[pid] = process::OpenPidfd(pid);
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

absl::Status LiveJob::Deliver(const experiment::Delivery& delivery) {
  if (delivery.signal == 0) {
    const bool servers = delivery.kind == ActionKind::kServers;
    return Scale(servers ? 0 : delivery.target, servers ? delivery.target : 0);
  }
  for (const pid_t pid : delivery.pids) {
    const auto pod = pods_.find(pid);
    if (pod == pods_.end()) continue;
    syscall(SYS_pidfd_send_signal, pod->second.get(), delivery.signal, nullptr,
            0);
  }
  return absl::OkStatus();
}

absl::Status LiveJob::Scale(int64_t workers, int64_t servers) {
  if (options_.peer != experiment::kElasticdl) {
    return absl::UnimplementedError(
        absl::StrCat(options_.peer, " cannot change its number of workers"));
  }
  const jobdir::JobDir dir(JoinPath(options_.folder, "state"), options_.name);
  const std::string query = workers > 0 ? absl::StrCat("num_workers=", workers)
                                        : absl::StrCat("num_ps_pods=", servers);
  return HttpPost(dir, absl::StrCat("/api/v1/scale?", query)).status();
}

void LiveJob::Stop() {
  if (reaped_) return;
  kill(process_.pid, std::exchange(asked_, true) ? SIGKILL : SIGTERM);
}

void LiveJob::Reap() {
  if (reaped_) return;
  int status = 0;
  rusage usage = {};
  while (wait4(process_.pid, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  cpu_seconds_ = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

std::string LiveJob::EventLog() const {
  return ReadFile(JoinPath(options_.folder, "events.jsonl")).value_or("");
}

std::string LiveJob::Audit() const {
  return ReadFile(JoinPath(options_.folder, "audit.jsonl")).value_or("");
}

std::string LiveJob::LastOutput() const {
  const std::string text =
      ReadFile(JoinPath(options_.folder, "output.log")).value_or("");
  const std::vector<std::string> lines =
      absl::StrSplit(process::LastWords(text, 2000), '\n', absl::SkipEmpty());
  // The last line only says where the logs are.
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!absl::StartsWith(*line, "logs: ")) return line->substr(0, 300);
  }
  return "";
}

}  // namespace elasticdl::cli
