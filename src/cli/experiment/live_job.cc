#include "experiment/live_job.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "elasticdl/common/file.h"
#include "elasticdl/experiment/cluster_job.h"
#include "elasticdl/flags/environment.h"

namespace elasticdl::cli {
namespace {

// Where the master of a job on a cluster writes what `elasticdl train` then
// gets as its log.
constexpr char kMasterOutput[] = "/dev/stdout";

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
  std::string run = options.folder;
  if (experiment::OnCluster(options.flags)) {
    run = absl::StrCat(options.name, "-", absl::ToUnixSeconds(absl::Now()));
    all["event_log"] = kMasterOutput;
    all["ledger_audit"] = kMasterOutput;
    // As JSON it would look like events.
    all["progress"] = "plain";
  } else {
    all["state_dir"] = JoinPath(options.folder, "state");
    all["event_log"] = JoinPath(options.folder, "events.jsonl");
    all["ledger_audit"] = JoinPath(options.folder, "audit.jsonl");
  }
  std::vector<std::string> args = {flags::ProgramBeside("elasticdl"), "train"};
  for (const auto& [name, value] : all) {
    args.push_back(absl::StrCat("--", name, "=",
                                absl::StrReplaceAll(value, {{"{run}", run}})));
  }
  return args;
}

absl::StatusOr<std::unique_ptr<LiveJob>> LiveJob::Start(
    const LiveJobOptions& options) {
  return experiment::OnCluster(options.flags) ? StartJobOnCluster(options)
                                              : StartJobHere(options);
}

LiveJob::LiveJob(LiveJobOptions options, process::Process process)
    : options_(std::move(options)),
      process_(std::move(process)),
      view_(options_.workers) {}

LiveJob::~LiveJob() {
  if (reaped_) return;
  kill(process_.pid, SIGKILL);
  LiveJob::Reap();
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

std::string LiveJob::PathOf(const char* file) const {
  return JoinPath(options_.folder, file);
}

std::string LiveJob::EventLog() const {
  return ReadFile(PathOf("events.jsonl")).value_or("");
}

experiment::LedgerCheck LiveJob::Ledger(bool finished) const {
  return experiment::CheckLedger(ReadFile(PathOf("audit.jsonl")).value_or(""),
                                 finished);
}

std::string LiveJob::LastOutput() const {
  const std::string text = ReadFile(PathOf("output.log")).value_or("");
  const std::vector<std::string> lines =
      absl::StrSplit(process::LastWords(text, 2000), '\n', absl::SkipEmpty());
  // The last line only says where the logs are.
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!absl::StartsWith(*line, "logs: ") &&
        !absl::StartsWith(*line, "its pods stay ")) {
      return line->substr(0, 300);
    }
  }
  return "";
}

}  // namespace elasticdl::cli
