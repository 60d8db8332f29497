// A job that was started before, wherever it runs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace elasticdl::cli {

// How a job ended. Empty state: it has not, or nobody knows.
struct JobEnd {
  std::string state;
  std::string reason;
};

struct LogRequest {
  // master, a pod's name or its end (0, worker-j-0); "" = all.
  std::string pod;
  // Go on until the job (or the pod asked for) has ended.
  bool follow = false;
  // Of the run before.
  bool previous = false;
};

struct StopRequest {
  // How long to wait for the job's end.
  absl::Duration timeout = absl::Seconds(60);
  // Do not remove the pods of a job that was running.
  bool keep_pods = false;
};

// Thread-compatible.
class JobHandle {
 public:
  virtual ~JobHandle() = default;

  virtual const std::string& name() const = 0;

  // The answer of /api/status. UNAVAILABLE when the master does not answer,
  // FAILED_PRECONDITION when the job does not run, others with the master's
  // words.
  virtual absl::StatusOr<std::string> Status() = 0;
  virtual absl::Status Scale(int64_t num_workers) = 0;
  // Asks the job to end, waits for it, and removes what it holds besides its
  // results; what to say then. DEADLINE_EXCEEDED: it has not ended in time.
  virtual absl::StatusOr<std::string> Stop(const StopRequest& request) = 0;
  // True as soon as the job has ended, false after `timeout`.
  virtual bool WaitEnd(absl::Duration timeout) = 0;
  virtual JobEnd End() = 0;
  // Writes logs to standard output.
  virtual absl::Status Logs(const LogRequest& request) = 0;
  // How to get at the status page with a browser. Holds the job's token.
  virtual absl::StatusOr<std::string> PageUrl() = 0;
};

// Waits for the end of a job that was asked to end. DEADLINE_EXCEEDED tells its
// name.
absl::Status WaitStopped(JobHandle& job, absl::Duration timeout);

// Does `pod`, "master" or the name of one, match LogRequest::pod? 1 is worker
// 1, ps-1 is server 1.
bool MatchesPod(absl::string_view pod, absl::string_view wanted);
// Sorts the names of pods: numbers in them count as numbers, and a server's
// pods come in the order in which they were started.
bool PodComesBefore(absl::string_view a, absl::string_view b);

// An answer of the master's HTTP API as Status; `job` begins the message. OK
// for code 200.
absl::Status HttpAnswerToStatus(int code, const std::string& body,
                                const std::string& job);

}  // namespace elasticdl::cli
