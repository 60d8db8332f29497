#include "program.h"

#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "commands/local_job_client.h"
#include "elasticdl/common/file.h"
#include "elasticdl/common/log.h"
#include "elasticdl/common/status.h"
#include "elasticdl/jobdir.h"
#include "environment.h"

namespace elasticdl::cli {

absl::Status InitLogFromFlags(const std::string& tag, const std::string& level,
                              const std::string& log_file) {
  LogLevel parsed = LogLevel::kInfo;
  ParseLogLevel(level, parsed);
  const absl::Status status =
      log_file.empty() ? absl::OkStatus() : AddLogFile(log_file);
  InitLog(tag, parsed);
  return Annotate(status, "--log_file_path");
}

bool StartedByHand() { return GetEnv(kLockFdVariable).empty(); }

absl::StatusOr<jobdir::JobLock> LockJob(const jobdir::JobDir& dir, bool go_on) {
  int fd = -1;
  if (absl::SimpleAtoi(GetEnv(kLockFdVariable), &fd)) {
    // The descriptor is this process's alone, whatever it starts.
    unsetenv(kLockFdVariable);
    return jobdir::JobLock::Adopt(dir, fd);
  }
  return go_on ? jobdir::JobLock::AcquireAgain(dir)
               : jobdir::JobLock::Acquire(dir);
}

std::string ExecutablePath() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

std::string ModelCacheDir() { return JoinPath(DefaultCacheDir(), "models"); }

void ReadWorkerEnvironment(const FlagSet& set, std::string* master_addr,
                           int64_t* worker_id) {
  const std::string addr = GetEnv("MASTER_ADDR");
  if (!set.IsSet("master_addr") && !addr.empty()) *master_addr = addr;
  int64_t id = 0;
  if (!set.IsSet("worker_id") && absl::SimpleAtoi(GetEnv("WORKER_ID"), &id)) {
    *worker_id = id;
  }
}

absl::StatusOr<std::string> FindToken(const std::string& token_file,
                                      const std::string& state_dir,
                                      const std::string& master_addr) {
  if (!token_file.empty()) {
    ELASTICDL_ASSIGN_OR_RETURN(const std::string text, ReadFile(token_file));
    return std::string(absl::StripAsciiWhitespace(text));
  }
  const std::string token = GetEnv("ELASTICDL_TOKEN");
  if (!token.empty()) return token;
  const std::string root = state_dir.empty() ? DefaultStateDir() : state_dir;
  auto job = jobdir::FindByAddress(root, master_addr);
  if (!job.ok()) {
    return absl::NotFoundError(absl::StrCat(
        "no token for the master at ", master_addr,
        ": give --token_file, or ELASTICDL_TOKEN, or run on the machine and ",
        "as the user of the master (", job.status().message(), ")"));
  }
  return job->ReadToken();
}

}  // namespace elasticdl::cli
