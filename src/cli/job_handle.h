// A job that is running or has ended, on this machine or on a cluster.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace elasticdl::cli {

// How a job ended. Empty state: it has not ended, or that is unknown.
struct JobEnd {
  std::string state;
  std::string reason;
};

struct LogRequest {
  // master, worker-0, ps-0, 0 (a worker) or the name of a pod; "" = all.
  std::string pod;
  // Continue until the job (or the requested pod) has ended.
  bool follow = false;
  // The logs of the previous run.
  bool previous = false;
};

struct JobPage {
  // Contains the job's token.
  std::string url;
  bool forwarded = false;
};

struct StopRequest {
  // How long to wait for the job's end.
  absl::Duration timeout = absl::Seconds(60);
  // Do not remove the pods of a job that was running.
  bool keep_pods = false;
  // On a cluster: remove the job without asking its master. Not with keep_pods.
  bool force = false;
};

// Thread-compatible.
class JobHandle {
 public:
  virtual ~JobHandle() = default;

  virtual const std::string& name() const = 0;

  // The response of the master's /api/v1/<what>: status, update, log?pod=NAME
  // or update?since=CURSOR. An ended job
  // on this machine has the update in its event log. UNAVAILABLE if the master
  // does not answer, FAILED_PRECONDITION if the job is not running; other
  // errors have the master's message.
  virtual absl::StatusOr<std::string> Get(const std::string& what) = 0;
  absl::StatusOr<std::string> Status() { return Get("status"); }
  // 0: as many as there are.
  virtual absl::Status Scale(int64_t num_workers, int64_t num_servers) = 0;
  // Asks the job to end, waits for that and removes everything except its
  // results. Returns a message for the user. DEADLINE_EXCEEDED: it has not
  // ended in time.
  virtual absl::StatusOr<std::string> Stop(const StopRequest& request) = 0;
  // True as soon as the job has ended, false after `timeout`.
  virtual bool WaitEnd(absl::Duration timeout) = 0;
  virtual JobEnd End() = 0;
  // Writes logs to standard output.
  virtual absl::Status Logs(const LogRequest& request) = 0;
  // Where a browser on this machine finds the job's page. That of a job on a
  // cluster is forwarded: by this object, as long as it is there, from `port`
  // (0 = a free one) of the loopback interface.
  virtual absl::StatusOr<JobPage> OpenPage(int port) = 0;
};

// Waits for the end of a job that was asked to end. DEADLINE_EXCEEDED contains
// its name.
absl::Status WaitStopped(JobHandle& job, absl::Duration timeout);

// Does `pod` ("master", or a pod's name) match LogRequest::pod? 1 is worker 1,
// ps-1 is server 1.
bool MatchesPod(absl::string_view pod, absl::string_view wanted);
// Sorts the names of pods: numbers in them count as numbers, and a server's
// pods come in the order in which they were started.
bool PodComesBefore(absl::string_view a, absl::string_view b);

// A response of the master's HTTP API as Status; the message begins with `job`.
// OK for code 200.
absl::Status HttpAnswerToStatus(int code, const std::string& body,
                                const std::string& job);

}  // namespace elasticdl::cli
