#include "elasticdl/jobdir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "elasticdl/common/status.h"

namespace elasticdl::jobdir {
namespace {

constexpr size_t kMaxJobName = 63;  // the limit of a Kubernetes label

absl::StatusOr<std::string> ReadLine(const std::string& path) {
  ELASTICDL_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  absl::StripAsciiWhitespace(&text);
  if (text.empty()) {
    return absl::NotFoundError(absl::StrCat(path, " is empty"));
  }
  return text;
}

// localhost, 127.x, ::1 and the wildcards are one host as seen from here.
std::string CanonicalAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return std::string(address);
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port = address.substr(colon + 1);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const bool loopback = host.empty() || host == "localhost" || host == "::" ||
                        host == "::1" || host == "0.0.0.0" ||
                        absl::StartsWith(host, "127.");
  return absl::StrCat(loopback ? "localhost" : host, ":", port);
}

}  // namespace

absl::Status ValidateJobName(const std::string& name) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("job name '", name, "': ", why));
  };
  if (name.empty()) return bad("must not be empty");
  if (name.size() > kMaxJobName) return bad("longer than 63 characters");
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') {
      return bad("only letters, digits, '-', '_' and '.' are allowed");
    }
  }
  if (!absl::ascii_isalnum(name.front()) || !absl::ascii_isalnum(name.back())) {
    return bad("must start and end with a letter or digit");
  }
  return absl::OkStatus();
}

JobDir::JobDir(const std::string& root, const std::string& job_name)
    : path_(JoinPath(JoinPath(root, "jobs"), job_name)), job_name_(job_name) {}

JobDir JobDir::FromPath(const std::string& path) {
  JobDir dir;
  dir.path_ = std::string(absl::StripSuffix(path, "/"));
  dir.job_name_ = std::filesystem::path(dir.path_).filename().string();
  return dir;
}

std::string JobDir::LogFile(const std::string& pod) const {
  return JoinPath(LogsDir(), absl::StrCat(pod, ".log"));
}

absl::StatusOr<std::string> JobDir::ReadToken() const {
  struct stat info;
  if (stat(TokenFile().c_str(), &info) == 0 && (info.st_mode & 0077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "token ", TokenFile(), ": others can read it; chmod 600 it"));
  }
  return ReadLine(TokenFile());
}

absl::StatusOr<std::string> JobDir::ReadAddress() const {
  return ReadLine(JoinPath(path_, "address"));
}

absl::StatusOr<std::string> JobDir::ReadHttpAddress() const {
  return ReadLine(JoinPath(path_, "http_address"));
}

absl::Status JobDir::WriteToken(const std::string& token) const {
  return WriteFileAtomic(TokenFile(), token + "\n", 0600);
}

absl::Status JobDir::WriteAddress(const std::string& host_port) const {
  return WriteFileAtomic(JoinPath(path_, "address"), host_port + "\n");
}

absl::Status JobDir::WriteHttpAddress(const std::string& host_port) const {
  return WriteFileAtomic(JoinPath(path_, "http_address"), host_port + "\n");
}

absl::Status JobDir::WritePid(const std::string& pod, pid_t pid) const {
  // Not durable: pids mean nothing after a reboot.
  const std::string path = JoinPath(JoinPath(path_, "pids"), pod);
  const Fd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("create ", path));
  return WriteAll(fd.get(), absl::StrCat(pid, "\n"), path);
}

void JobDir::RemovePid(const std::string& pod) const {
  unlink(JoinPath(JoinPath(path_, "pids"), pod).c_str());
}

void JobDir::MarkStopping() const {
  // Without it, the job is only started again.
  WriteFileAtomic(JoinPath(path_, "stopping"), "").IgnoreError();
}

bool JobDir::IsStopping() const {
  return FileExists(JoinPath(path_, "stopping"));
}

std::map<std::string, pid_t> JobDir::ReadPids() const {
  std::map<std::string, pid_t> pids;
  const std::string folder = JoinPath(path_, "pids");
  const auto names = ListDirectory(folder);
  if (!names.ok()) return pids;
  for (const std::string& name : *names) {
    const auto text = ReadLine(JoinPath(folder, name));
    pid_t pid = 0;
    if (text.ok() && absl::SimpleAtoi(*text, &pid)) pids[name] = pid;
  }
  return pids;
}

bool JobDir::IsRunning() const {
  const Fd fd(open(LockFile().c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return false;
  // Only asks: a master that starts at this moment must get the lock.
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::vector<JobDir> ListJobs(const std::string& root) {
  std::vector<JobDir> jobs;
  const auto names = ListDirectory(JoinPath(root, "jobs"));
  if (!names.ok()) return jobs;
  for (const std::string& name : *names) {
    if (ValidateJobName(name).ok()) jobs.emplace_back(root, name);
  }
  return jobs;
}

absl::StatusOr<JobDir> FindByAddress(const std::string& root,
                                     const std::string& address) {
  const std::string wanted = CanonicalAddress(address);
  for (const JobDir& job : ListJobs(root)) {
    const auto theirs = job.ReadAddress();
    // A master that was killed leaves its address, and another job may have got
    // the port.
    if (theirs.ok() && CanonicalAddress(*theirs) == wanted && job.IsRunning()) {
      return job;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no job that runs on this machine has its master on ",
                   address, " (looked in ", JoinPath(root, "jobs"), ")"));
}

}  // namespace elasticdl::jobdir
