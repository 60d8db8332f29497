// Which worker pods to create and delete: a pure reconcile. Events and the time
// go in, decisions with their reasons come out; the caller executes them.
//
// A *lineage* is one place among the job's workers. Its pod may die and be
// replaced; the replacement gets the next id (ids are never reused) and
// inherits priority and failure count.
//
//   how the pod ended                                    then
//   ---------------------------------------------------  ---------------------
//   deleted, evicted, preempted, SIGKILL or SIGTERM      relaunched, always
//     (137 or 143 as exit code, not OOMKilled)
//   exit 0 after it announced that it leaves             relaunched, always
//   any other exit code or signal, OOMKilled             relaunched, at most
//                                                        relaunch_on_worker_-
//                                                        failure times
//   exit 0                                               done
//   any, after scaling down, SetWorkDone, Stop or Fail   gone
//
// Without `relaunch` nothing is relaunched: its place stays empty.
//
// A lineage whose pods keep ending soon after their start waits longer and
// longer before the next. A pod that cannot be created for now (a quota, an API
// server that is away) is tried again for ever; one that stays pending is told
// with the cluster's reason and left alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pod_backend.h"
#include "worker_priority.h"

namespace elasticdl::master {

// It failed by itself: not by success, and nobody took it away.
bool IsProcessFailure(const PodEvent& event);

struct PodManagerOptions {
  std::string job_name;
  // Pods to keep running, at least 1.
  int64_t num_workers = 2;
  // Real failures that a lineage survives.
  int64_t relaunch_on_worker_failure = 1;
  // False: a pod that is gone is never replaced, for whatever reason it went.
  bool relaunch = true;
  WorkerPriority priority;
  // Between SIGTERM and SIGKILL: time to finish a step and hand data back.
  absl::Duration delete_grace = absl::Seconds(10);
  // A pod that ran this long was healthy: the next relaunch is immediate.
  absl::Duration stable_after = absl::Seconds(5);
  // The first relaunch after a healthy run is immediate, the second waits this
  // long, and each further one twice as long up to the maximum. Also between
  // tries to create a pod.
  absl::Duration backoff_initial = absl::Seconds(1);
  absl::Duration backoff_max = absl::Seconds(30);
  // A pod that runs for so long without its worker having attached hangs: it is
  // replaced. Infinite: for programs that never attach.
  absl::Duration attach_timeout = absl::InfiniteDuration();
  // The work is done when every lineage is done (exit code 0). Without it, that
  // is the caller's to say (SetWorkDone), and workers that all leave before are
  // a failure.
  bool exit_zero_is_done = false;
  // Where ids go on after a restart of the master.
  int64_t first_worker_id = 0;
};

struct PodDecision {
  enum class Kind {
    kCreate,   // create pod `name`; on error call CreateFailed
    kDelete,   // delete pod `name` with `grace`; NOT_FOUND is no error
    kEnded,    // for the record: the pod has ended, for this reason
    kDelayed,  // for the record: the next try comes at `at`, or (infinite) the
               // pod is there and the cluster does not get it to run
    kGaveUp,   // for the record: this lineage is not launched again
  };
  Kind kind = Kind::kCreate;
  std::string name;
  int64_t id = 0;
  // kCreate.
  std::string priority;
  // kCreate: the worker whose place this one takes, or -1.
  int64_t replaces = -1;
  // kDelete.
  absl::Duration grace;
  // kDelayed.
  absl::Time at;
  // kEnded: it failed by itself; its tasks count a failure (design: preemption
  // never does).
  bool process_failure = false;
  std::string reason;
};

const char* PodDecisionKindName(PodDecision::Kind kind);

enum class JobState { kRunning, kSucceeded, kFailed, kStopped };
const char* JobStateName(JobState state);

struct JobOutcome {
  JobState state = JobState::kRunning;
  std::string reason;
};

// One pod as people see it.
struct PodInfo {
  std::string name;
  int64_t id = 0;
  PodType type = PodType::kWorker;
  std::string priority;
  // Waiting, Pending, Running, Terminating.
  std::string state;
  pid_t pid = 0;
  // Real failures of its lineage so far.
  int64_t failures = 0;
  // Why it does not run, in the cluster's words. May be empty.
  std::string message;
};

// Thread-compatible.
class PodManager {
 public:
  using Decisions = std::vector<PodDecision>;

  explicit PodManager(PodManagerOptions options);

  // Before Start: the pods of an earlier run of this master, with their ids.
  // Those that have not ended keep their places and priorities; the ids of all
  // are never used again. What did not get an id (-1) is left alone.
  void Adopt(const std::vector<PodEvent>& existing);

  // The first pods: as many as are missing. Adopted ones beyond the target are
  // deleted.
  Decisions Start(absl::Time now);

  // From the backend. Events of unknown pods, repeated and late ones are
  // ignored; create_error is handed to CreateFailed.
  Decisions OnPodEvent(const PodEvent& event, absl::Time now);

  // A Create that was decided has failed. INVALID_ARGUMENT and NOT_FOUND are
  // final for the lineage, anything else is tried again under the same name.
  // ALREADY_EXISTS is success.
  Decisions CreateFailed(const std::string& name, const absl::Status& error,
                         absl::Time now);

  // Call at or after next_wake(). `attached` knows which workers have come.
  Decisions OnTimer(
      absl::Time now, const std::function<bool(int64_t id)>& attached =
                          [](int64_t) { return true; });
  // When OnTimer has something to do; InfiniteFuture for never.
  absl::Time next_wake() const;

  // A new number of workers. Scaling down removes waiting and pending pods
  // first, then the youngest. INVALID_ARGUMENT below 1; FAILED_PRECONDITION
  // when the job is ending.
  absl::StatusOr<Decisions> SetTarget(int64_t num_workers, absl::Time now);

  // The worker said that it leaves (SIGTERM reached it): its exit 0 is a
  // preemption, not the end of its work.
  void NoteLeaving(int64_t id);

  // The failure that is about to be told by OnPodEvent is the fault of the task
  // that the worker held: relaunched without counting against its place.
  void ForgiveFailure(int64_t id);

  // Replaces a worker that hangs: killed, then relaunched without counting a
  // failure. NOT_FOUND when there is none of that id.
  absl::StatusOr<Decisions> Replace(int64_t id, const std::string& reason,
                                    absl::Time now);

  // All work is in the model (call it before the workers are told to stop): no
  // more relaunches; the job has succeeded when all pods have ended. Workers
  // that `attached` knows will hear of it; the pods of others are deleted.
  Decisions SetWorkDone(
      absl::Time now, const std::function<bool(int64_t id)>& attached =
                          [](int64_t) { return true; });

  // Ends the job now: all pods are deleted.
  Decisions Stop(const std::string& reason, absl::Time now);
  Decisions Fail(const std::string& reason, absl::Time now);

  // kFailed and kStopped may come while pods are still ending: see all_gone.
  const JobOutcome& outcome() const { return outcome_; }
  // No pod exists as far as is known.
  bool all_gone() const { return by_name_.empty(); }

  int64_t target() const { return target_; }
  // For the journal: the id that the next worker gets.
  int64_t next_worker_id() const { return next_id_; }
  std::vector<PodInfo> pods() const;
  // -1 when `name` is no pod of this manager (any more).
  int64_t IdOf(const std::string& name) const;

 private:
  enum class LineageState {
    kWaiting,   // no pod; create one at not_before
    kCreating,  // Create was decided
    kRunning,
    kDone,    // exit 0
    kGaveUp,  // failed too often
  };
  struct Lineage {
    LineageState state = LineageState::kWaiting;
    std::string priority;
    // Of the present pod, or of the one that could not be created; else -1.
    int64_t id = -1;
    int64_t previous_id = -1;
    std::string why;  // reason of the next kCreate
    absl::Time not_before = absl::InfinitePast();
    absl::Time started;  // Create decided, then running
    // When its worker should have attached by.
    absl::Time attach_by = absl::InfiniteFuture();
    pid_t pid = 0;
    int64_t failures = 0;
    int64_t quick_ends = 0;
    int64_t create_errors = 0;
    bool leaving = false;      // announced
    bool forgiven = false;     // the next failure does not count
    bool deleting = false;     // Delete was decided
    bool removed = false;      // not to be replaced
    bool terminating = false;  // the cluster says so
    std::string delete_reason;
    std::string message;         // why it does not run
    std::set<std::string> told;  // the messages of this pod so far
  };
  using Slots = std::map<int64_t, Lineage>;

  bool HasPod(const Lineage& lineage) const;
  bool IsActive(const Lineage& lineage) const;
  bool ending() const {
    return work_done_ || outcome_.state != JobState::kRunning;
  }
  static std::pair<int, int64_t> LossOf(const Lineage& lineage);
  Lineage* FindById(int64_t id);
  int64_t NumActive() const;
  std::string NextPriority() const;
  std::string Name(int64_t id) const;
  absl::Duration BackoffAfter(int64_t count) const;

  void AddLineages(int64_t count, const std::string& why);
  void RemoveSurplus(const std::string& why, Decisions& out);
  void Alive(Lineage& lineage, const PodEvent& event, absl::Time now,
             Decisions& out);
  void Reconcile(absl::Time now, Decisions& out);
  void Create(Lineage& lineage, absl::Time now, Decisions& out);
  void Delete(Lineage& lineage, const std::string& reason, Decisions& out);
  void Kill(Lineage& lineage, const std::string& reason, Decisions& out);
  void Remove(Slots::iterator it, const std::string& reason, Decisions& out);
  void Ended(Slots::iterator it, const PodEvent& event, absl::Time now,
             Decisions& out);
  void Relaunch(Lineage& lineage, const std::string& reason, absl::Time now,
                Decisions& out);
  void GiveUp(Lineage& lineage, const std::string& reason, Decisions& out);
  void EndAll(const std::string& reason, Decisions& out);
  void UpdateOutcome(Decisions& out);
  void SetOutcome(JobState state, const std::string& reason);

  const PodManagerOptions options_;
  int64_t target_;
  int64_t next_id_;
  int64_t next_slot_ = 0;
  bool started_ = false;
  bool work_done_ = false;
  JobOutcome outcome_;
  std::string last_give_up_;
  Slots slots_;
  // Pods that exist or were asked for -> slot.
  std::map<std::string, int64_t> by_name_;
};

}  // namespace elasticdl::master
