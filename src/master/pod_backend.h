// The interface between a job and what runs its pods: local processes, Slurm or
// Kubernetes. Everything above it (relaunch rules, ids, priorities) is common
// code.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace elasticdl::master {

enum class PodType { kWorker, kPs };

// "worker", "ps": the word in pod names, labels and logs.
const char* PodTypeName(PodType type);

// elasticdl-worker-<job>-<id>, elasticdl-ps-<job>-<id>. A server keeps its id
// when its pod is replaced, and pods that have ended stay to be read, so the
// name of a later attempt ends with -r<attempt>.
std::string PodName(PodType type, const std::string& job_name, int64_t id,
                    int64_t attempt = 0);
// The attempt in a name that PodName has made.
int64_t PodAttempt(const std::string& name);

// What to run.
struct PodSpec {
  std::string name;
  PodType type = PodType::kWorker;
  int64_t id = 0;
  // Program and arguments; argv[0] is a path or a name found in PATH.
  std::vector<std::string> argv;
  // Added to what the backend gives every pod; later entries win.
  std::vector<std::pair<std::string, std::string>> env;
  // Priority class; empty for the default. Local processes have none.
  std::string priority;
  // Where standard output and error go; empty = dropped. Local pods only.
  std::string log_file;
};

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kDeleted };

// Why a pod ended. kNone with kSucceeded.
enum class PodEndReason {
  kNone,
  kError,      // it failed by itself: an exit code or a signal
  kOomKilled,  // only a cluster can tell
  kEvicted,
  kPreempted,
  kDeleted,  // by Delete() or by somebody else
};

const char* PodPhaseName(PodPhase phase);
const char* PodEndReasonName(PodEndReason reason);

// What the backend has seen. A local backend sends at most one final event
// (kSucceeded, kFailed or kDeleted) per pod; a cluster may repeat events.
struct PodEvent {
  std::string name;
  PodPhase phase = PodPhase::kPending;
  // kRunning: the local process, or 0.
  pid_t pid = 0;
  // Final phases: how it ended. exit_code is -1 when a signal ended it or when
  // it is not known; signal is 0 unless a signal did. A cluster's 128 + n comes
  // as exit_code.
  int exit_code = -1;
  int signal = 0;
  PodEndReason reason = PodEndReason::kNone;
  // For people: the message of the scheduler or the kernel; kPending and
  // kRunning: why it makes no progress. May be empty.
  std::string message;
  // Not OK: not a pod's event but the news that Create, which had returned OK,
  // has failed for this reason. Means what Create would have returned.
  absl::Status create_error;
  // kRunning: how often the cluster has started its container again, and how
  // the one before ended.
  int64_t restarts = 0;
  std::string restart_reason;
  bool restart_failure = false;
  // Its deletion has begun, by anybody.
  bool terminating = false;
  // Final phases: its node refused it, so that nothing of it ever ran.
  bool refused = false;
  // What is known about pods of an earlier run of the master; a local backend
  // does not fill these in. id is -1 when it is not known.
  PodType type = PodType::kWorker;
  int64_t id = -1;
  int64_t attempt = 0;
  std::string priority;
};

bool operator==(const PodEvent& a, const PodEvent& b);

// Fills in name, type, id and attempt; false if `name` is none that PodName
// makes for that job.
bool ParsePodName(const std::string& name, const std::string& job_name,
                  PodEvent* pod);

// kSucceeded, kFailed, kDeleted.
bool IsFinal(PodPhase phase);

// It failed by itself: it did not succeed and was not preempted.
bool IsProcessFailure(const PodEvent& event);

// By a signal that a program raises in itself.
bool EndedByCrash(const PodEvent& event);

// How a worker ends whose GPU failed (kExitDevice of elasticdl/worker.h).
inline constexpr int kWorkerExitDevice = 6;

// "exit code 3", "signal 9 (Killed)", "OOMKilled, exit code 137", …
std::string DescribePodEnd(const PodEvent& event);

// Receives every event, in order, on the backend's own thread. It must not
// block; it may call Create and Delete.
using PodEventSink = std::function<void(const PodEvent& event)>;

// Thread-safe.
class PodBackend {
 public:
  virtual ~PodBackend() = default;

  // Starts a pod. INVALID_ARGUMENT or NOT_FOUND (no such program, image, …):
  // trying again cannot help. ALREADY_EXISTS: a pod of that name is there. Any
  // other error may pass. After OK, events follow. Never waits for a network:
  // what a cluster says to it later comes as PodEvent::create_error.
  virtual absl::Status Create(const PodSpec& spec) = 0;

  // SIGTERM, then SIGKILL after `grace`. Returns at once; the final event is
  // kDeleted, whatever the exit code. NOT_FOUND when there is no such pod (any
  // more). A second Delete may shorten the grace.
  virtual absl::Status Delete(const std::string& name,
                              absl::Duration grace) = 0;

  // Kills all pods, waits for them (a cluster: for a while) and for the
  // backend's threads. No event comes after it has returned. Idempotent; not
  // from the sink.
  virtual void Stop() = 0;
};

}  // namespace elasticdl::master
