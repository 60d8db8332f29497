#include "program.h"

#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/flags/environment.h"
#include "elasticdl/jobdir.h"
#include "elasticdl/sentinel.h"

namespace elasticdl::programs {

absl::Status InitLogFromFlags(const std::string& tag,
                              const flags::JobFlags& flags,
                              const std::string& log_file) {
  LogLevel parsed = LogLevel::kInfo;
  ParseLogLevel(flags.log_level, parsed);
  if (flags.log_format == "json") UseJsonLog();
  const absl::Status status =
      log_file.empty() ? absl::OkStatus() : AddLogFile(log_file);
  InitLog(tag, parsed);
  return Annotate(status, "--log_file_path");
}

bool StartedByHand() { return flags::GetEnv(jobdir::kLockFdVariable).empty(); }

absl::StatusOr<jobdir::JobLock> LockJob(const jobdir::JobDir& dir, bool go_on,
                                        const std::string& owner) {
  int fd = -1;
  if (absl::SimpleAtoi(flags::GetEnv(jobdir::kLockFdVariable), &fd)) {
    // The descriptor is this process's alone, whatever it starts.
    unsetenv(jobdir::kLockFdVariable);
    return jobdir::JobLock::Adopt(dir, fd);
  }
  return go_on ? jobdir::JobLock::AcquireAgain(dir, owner)
               : jobdir::JobLock::Acquire(dir, owner);
}

std::string ExecutablePath() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

std::string ModelCacheDir() {
  return JoinPath(flags::DefaultCacheDir(), "models");
}

void ReadMasterAddress(const flags::FlagSet& set, std::string* master_addr) {
  const std::string addr = flags::GetEnv("MASTER_ADDR");
  if (!set.IsSet("master_addr") && !addr.empty()) *master_addr = addr;
}

void ReadWorkerEnvironment(const flags::FlagSet& set, std::string* master_addr,
                           int64_t* worker_id) {
  ReadMasterAddress(set, master_addr);
  int64_t id = 0;
  if (!set.IsSet("worker_id") &&
      absl::SimpleAtoi(flags::GetEnv("WORKER_ID"), &id)) {
    *worker_id = id;
  }
}

absl::StatusOr<std::string> GivenToken(const std::string& token_file) {
  std::string token = flags::GetEnv("ELASTICDL_TOKEN");
  std::string origin = "ELASTICDL_TOKEN";
  if (!token_file.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(token, ReadFile(token_file));
    origin = absl::StrCat("--token_file=", token_file);
  } else if (token.empty()) {
    return token;
  }
  absl::StripAsciiWhitespace(&token);
  ELASTICDL_RETURN_IF_ERROR(Annotate(jobdir::CheckToken(token), origin));
  return token;
}

absl::StatusOr<std::string> FindToken(const std::string& token_file,
                                      const std::string& state_dir,
                                      const std::string& master_addr) {
  ELASTICDL_ASSIGN_OR_RETURN(const std::string given, GivenToken(token_file));
  if (!given.empty()) return given;
  const std::string root =
      state_dir.empty() ? flags::DefaultStateDir() : state_dir;
  auto job = jobdir::FindByAddress(root, master_addr);
  if (!job.ok()) {
    return absl::NotFoundError(absl::StrCat(
        job.status().message(),
        ". If it runs in another container, on another machine or as another ",
        "user, give master and worker the same token: set ELASTICDL_TOKEN for ",
        "both, e.g. to the output of 'openssl rand -hex 32', or give both ",
        "--token_file"));
  }
  return job->ReadToken();
}

void StartSentinelUnlessSlurm() {
  if (!flags::GetEnv("SLURM_JOB_ID").empty()) return;
  const absl::Status started = process::StartSentinel();
  if (!started.ok()) LogInfo("no sentinel: ", started.message());
}

void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  // What cannot be raised stays: small jobs do not need it.
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace elasticdl::programs
