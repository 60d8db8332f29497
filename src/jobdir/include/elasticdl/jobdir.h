// The folder in which a job of this machine keeps its address, token, pids,
// logs and events. Client, master and a worker started by hand find each other
// through it.
//
//   <root>/jobs/<job_name>/     0700
//     lock                      held while the job runs
//     token                     0600, 64 hexadecimal digits
//     address                   host:port of the master's gRPC service
//     http_address              host:port of the status page
//     pids/<pod>                one number each; master, and client if there is
//                               one that starts a killed master again
//     logs/<pod>.log            master.log is the master's
//     copied                    how much of them is in the file of
//                               --log_file_path
//     events.jsonl
//     journal                   of a job whose master may be restarted
//     owner                     whose journal that is: the job of Slurm
//     ps/                       logs of the parameter servers: their values
//     previous/                 logs and events of the run before
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "elasticdl/common/file.h"

namespace elasticdl::jobdir {

// Job names become parts of paths, pod names and labels: letters, digits, '-',
// '_' and '.', at most 63, starting and ending with a letter or digit.
absl::Status ValidateJobName(const std::string& name);

// 32 random bytes from the kernel as hexadecimal digits.
absl::StatusOr<std::string> NewToken();

// INVALID_ARGUMENT for an invalid token: fewer than 16 characters, which could
// be guessed, or characters that are not printable or are spaces, which cannot
// be sent in every header.
absl::Status CheckToken(const std::string& token);

// The paths of one job, whether it exists or not. Thread-compatible.
class JobDir {
 public:
  // Acquire refuses an invalid name.
  JobDir(const std::string& root, const std::string& job_name);
  // From the folder itself; its last component is the job's name.
  static JobDir FromPath(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& job_name() const { return job_name_; }
  std::string LockFile() const { return JoinPath(path_, "lock"); }
  std::string TokenFile() const { return JoinPath(path_, "token"); }
  std::string LogsDir() const { return JoinPath(path_, "logs"); }
  // logs/<pod>.log
  std::string LogFile(const std::string& pod) const;
  std::string EventsFile() const { return JoinPath(path_, "events.jsonl"); }
  std::string JournalFile() const { return JoinPath(path_, "journal"); }
  std::string OwnerFile() const { return JoinPath(path_, "owner"); }
  std::string PsLogDir() const { return JoinPath(path_, "ps"); }

  // NOT_FOUND until the master has written them. The token's file must not be
  // readable by others (PERMISSION_DENIED).
  absl::StatusOr<std::string> ReadToken() const;
  absl::StatusOr<std::string> ReadAddress() const;
  absl::StatusOr<std::string> ReadHttpAddress() const;

  // The master publishes where it listens, and the token that it was given.
  absl::Status WriteToken(const std::string& token) const;
  absl::Status WriteAddress(const std::string& host_port) const;
  absl::Status WriteHttpAddress(const std::string& host_port) const;

  absl::Status WritePid(const std::string& pod, pid_t pid) const;
  void RemovePid(const std::string& pod) const;
  // Somebody has asked the master to end the job: if it is killed now, nobody
  // starts it again.
  void MarkStopping() const;
  bool IsStopping() const;
  std::map<std::string, pid_t> ReadPids() const;

  // Does a process hold the job's lock? Looks without touching the lock.
  bool IsRunning() const;

 private:
  JobDir() = default;
  std::string path_;
  std::string job_name_;
};

// The environment variable by which the client hands the job's lock (an open
// descriptor) to the master, which calls JobLock::Adopt.
inline constexpr char kLockFdVariable[] = "ELASTICDL_LOCK_FD";
// By these it lets the master's pods outlive the master: the descriptor of
// process::TellEnded; and, if it has started the master again, how often and
// which signal killed the last one, with a blank between them.
inline constexpr char kEndedFdVariable[] = "ELASTICDL_ENDED_FD";
inline constexpr char kRestartVariable[] = "ELASTICDL_MASTER_RESTART";

// Holds a job's lock: one running job per name. Move-only. The lock belongs to
// the open file, so a child that inherits the descriptor keeps it; it ends when
// the last of them has closed it or died.
class JobLock {
 public:
  // Prepares the folder for a new run: takes the lock, moves what an earlier
  // run left to previous/, writes a fresh token. ALREADY_EXISTS when a job of
  // that name is running. `owner`: for whom, when names may be used again.
  static absl::StatusOr<JobLock> Acquire(const JobDir& dir,
                                         const std::string& owner = "");
  // The same, but a run of that owner that kept a journal is gone on with:
  // nothing is moved and its token stays.
  static absl::StatusOr<JobLock> AcquireAgain(const JobDir& dir,
                                              const std::string& owner = "");

  // Takes over the descriptor that the parent process passed on.
  // INVALID_ARGUMENT when it is not this job's lock.
  static absl::StatusOr<JobLock> Adopt(const JobDir& dir, int fd);

  int fd() const { return fd_.get(); }

 private:
  explicit JobLock(Fd fd) : fd_(std::move(fd)) {}
  static absl::StatusOr<JobLock> Take(const JobDir& dir);
  absl::Status Prepare(const JobDir& dir, const std::string& owner) const;
  Fd fd_;
};

// All jobs under `root`, by name, ended ones included. A missing root is empty.
std::vector<JobDir> ListJobs(const std::string& root);

// The running job whose master listens on `address` (host:port; the names of
// the loopback are one host). How a worker that was started by hand finds its
// token. NOT_FOUND names the address.
absl::StatusOr<JobDir> FindByAddress(const std::string& root,
                                     const std::string& address);

}  // namespace elasticdl::jobdir
