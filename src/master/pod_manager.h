// Which pods to create and delete: a pure reconcile. Events and the time go in,
// decisions with their reasons come out; the caller executes them.
//
// A job has workers and, with the parameter-server strategy, servers: a
// PodFleet of each, whose slots are PodSlots (pod_slot.h says when a pod is
// replaced). This class decides what it means for the job when they end:
//
//   what                                              outcome
//   ------------------------------------------------  ----------
//   SetWorkDone, then all pods have ended             kSucceeded
//   all workers are done (exit_zero_is_done)          kSucceeded
//   no worker is left, and there is work              kFailed
//   a server is given up: its share of the model is   kFailed
//     lost
//   Stop                                              kStopped
//   Fail                                              kFailed
//
// Servers are created before workers and deleted after them: a worker that ends
// may still need them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pod_backend.h"
#include "pod_decision.h"
#include "pod_fleet.h"
#include "worker_priority.h"

namespace elasticdl::master {

struct PodManagerOptions {
  std::string job_name;
  // Pods to keep running, at least 1.
  int64_t num_workers = 2;
  // Parameter servers to keep running; 0: the job has none.
  int64_t num_servers = 0;
  // Real failures that a slot survives, of either kind.
  int64_t relaunch_on_worker_failure = 1;
  // False: a pod is never replaced, whatever the reason why it ended.
  bool relaunch = true;
  WorkerPriority priority;
  // Priority class of servers; empty for the default.
  std::string server_priority;
  // Between SIGTERM and SIGKILL: time to finish a step and hand data back.
  absl::Duration delete_grace = absl::Seconds(10);
  // A pod that ran this long was healthy: the next relaunch is immediate.
  absl::Duration stable_after = absl::Seconds(5);
  // The first relaunch after a healthy run is immediate, the second waits this
  // long, and each further one after a failure twice as long up to the maximum.
  // Also between tries to create a pod.
  absl::Duration backoff_initial = absl::Seconds(1);
  absl::Duration backoff_max = absl::Seconds(30);
  // A pod whose worker has not attached after this time is considered stuck and
  // is replaced. Infinite: for programs that never attach.
  absl::Duration attach_timeout = absl::InfiniteDuration();
  // The same for servers, which attach before they read their logs.
  absl::Duration server_attach_timeout = absl::InfiniteDuration();
  // The work is done when every worker is done (exit code 0). Otherwise the
  // caller decides (SetWorkDone), and it is a failure if all workers leave
  // before that.
  bool exit_zero_is_done = false;
  // Where ids go on after a restart of the master.
  int64_t first_worker_id = 0;
};

enum class JobState { kRunning, kSucceeded, kFailed, kStopped };

struct JobOutcome {
  JobState state = JobState::kRunning;
  std::string reason;
};

// Who runs in a pod.
struct PodIdentity {
  PodType type = PodType::kWorker;
  int64_t id = -1;
};

// Thread-compatible.
class PodManager {
 public:
  using Decisions = PodDecisions;

  explicit PodManager(const PodManagerOptions& options);

  // Before Start: the pods of an earlier run of this master, with their ids.
  // Those that have not ended keep their slots and priorities; names are never
  // used again. What did not get an id (-1) is left alone.
  void Adopt(const std::vector<PodEvent>& existing);

  // The first pods, servers first: as many as are missing. Adopted ones beyond
  // the target are deleted.
  Decisions Start(absl::Time now);

  // From the backend. Events of unknown pods, repeated and late ones are
  // ignored; create_error is handed to CreateFailed.
  Decisions OnPodEvent(const PodEvent& event, absl::Time now);

  // A Create that was decided has failed. INVALID_ARGUMENT and NOT_FOUND are
  // final for the slot, anything else is tried again under the same name.
  // ALREADY_EXISTS is success.
  Decisions CreateFailed(const std::string& name, const absl::Status& error,
                         absl::Time now);

  // Call at or after next_wake(). `attached` knows which workers and servers
  // are attached.
  using Attached = std::function<bool(PodType type, int64_t id)>;
  Decisions OnTimer(
      absl::Time now,
      const Attached& attached = [](PodType, int64_t) { return true; });
  // When OnTimer has something to do; InfiniteFuture for never.
  absl::Time next_wake() const;

  // A new number of workers or servers (pod_fleet.h tells which ones go).
  // INVALID_ARGUMENT below 1; FAILED_PRECONDITION when the job is ending, or
  // for servers of a job that has none.
  absl::StatusOr<Decisions> SetTarget(int64_t count, absl::Time now,
                                      PodType type = PodType::kWorker);

  // The worker said that it leaves (SIGTERM reached it): its exit 0 is a
  // preemption, not the end of its work.
  void NoteLeaving(int64_t worker_id);

  // The failure that OnPodEvent is about to report is blamed on the task that
  // the worker held: relaunched without counting against its slot.
  void ForgiveFailure(int64_t worker_id);

  // Replaces a pod that hangs: killed, then relaunched without counting a
  // failure. NOT_FOUND when there is none of that id.
  absl::StatusOr<Decisions> Replace(int64_t id, const std::string& reason,
                                    absl::Time now,
                                    PodType type = PodType::kWorker);

  // All work is in the model (call it before the workers are stopped): no more
  // relaunches; the job has succeeded when all pods have ended. Workers in
  // `attached` stop by themselves; the pods of others are deleted, and those of
  // servers when the last worker has ended.
  Decisions SetWorkDone(
      absl::Time now, const std::function<bool(int64_t id)>& attached =
                          [](int64_t) { return true; });

  // Ends the job now: all pods are deleted.
  Decisions Stop(const std::string& reason, absl::Time now);
  Decisions Fail(const std::string& reason, absl::Time now);

  // kFailed and kStopped may come while pods are still ending: see all_gone.
  const JobOutcome& outcome() const { return outcome_; }
  // No pod exists as far as is known.
  bool all_gone() const { return workers_.all_gone() && servers_.all_gone(); }

  int64_t target(PodType type = PodType::kWorker) const {
    return type == PodType::kWorker ? workers_.target() : servers_.target();
  }
  // For the journal: the id that the next worker gets.
  int64_t next_worker_id() const { return workers_.next_id(); }
  // Servers first.
  std::vector<PodInfo> pods() const;
  // Nothing when `name` is no pod of this manager (any more).
  std::optional<PodIdentity> Find(const std::string& name);

 private:
  bool ending() const {
    return work_done_ || outcome_.state != JobState::kRunning;
  }
  PodFleet& fleet(PodType type) {
    return type == PodType::kWorker ? workers_ : servers_;
  }
  PodSlot* FindPod(const std::string& name);
  // After an event: is the job over? Else creates what is due.
  void Settle(absl::Time now, Decisions& out);
  void UpdateOutcome(Decisions& out);
  void End(JobState state, const std::string& reason, Decisions& out);

  const bool exit_zero_is_done_;
  const bool has_servers_;
  PodFleet workers_;
  PodFleet servers_;
  bool started_ = false;
  bool work_done_ = false;
  JobOutcome outcome_;
  // Why the last worker was given up; empty: none was.
  std::string last_give_up_;
};

}  // namespace elasticdl::master
