// One slot of a job and its successive pods, as a state machine.
//
// A *slot* is one place among the job's workers or among its parameter
// servers. Its pod may die and be replaced; the replacement inherits priority
// and failure count.
//
//   state      what happens                               next      decides
//   ---------  -----------------------------------------  --------  ----------
//   kWaiting   it is due                                  kCreating kCreate
//   kWaiting   its pod exists, although creating it was   kCreating
//              reported as failed                         kRunning
//   kCreating  creating it failed for now (a quota, an    kWaiting  kDelayed
//              API server that is away)
//   kCreating  creating it failed for good (no image)     kGaveUp   kGaveUp
//   kCreating  the pod runs                               kRunning
//   kRunning   a server's container crashed, and the      kRunning  kDelayed
//              cluster has started it again
//   kRunning   the same, more than max_failures times     kGaveUp   kGaveUp
//   kRunning   not attached within attach_timeout, or     kRunning  kDelete
//              Replace
//   has pod *  it ended, and (see below) is replaced      kWaiting  kEnded
//   has pod    it ended, and is not replaced              kGaveUp   kEnded,
//                                                                   kGaveUp
//   has pod    a worker ended with exit code 0            kDone     kEnded
//   has pod    Remove                                     same      kDelete
//   has pod    it ended after Remove or Retire            kGone     kEnded
//   no pod     Remove                                     kGone
//
//   * kCreating or kRunning.
//
//   how the pod ended                                    then
//   ---------------------------------------------------  ---------------------
//   deleted, evicted, preempted, SIGKILL or SIGTERM      replaced, always
//     (137 or 143 as exit code, not OOMKilled)
//   exit 0 after it announced that it leaves             replaced, always
//   any other exit code or signal, OOMKilled             replaced, at most
//                                                        max_failures times
//   exit 0, unannounced                                  a worker is done; a
//                                                        server is replaced
//
// Without `relaunch` nothing is replaced. A slot whose pods keep failing soon
// after their start waits longer before each relaunch. A preempted pod is
// replaced at once, or after a second if it is preempted repeatedly. A pod that
// stays pending is reported with the cluster's reason and is not deleted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "pod_backend.h"
#include "pod_decision.h"

namespace elasticdl::master {

// The same for all slots of one kind.
struct SlotRules {
  PodType type = PodType::kWorker;
  std::string job_name;
  // Real failures that a slot survives.
  int64_t max_failures = 1;
  bool relaunch = true;
  absl::Duration delete_grace = absl::Seconds(10);
  absl::Duration stable_after = absl::Seconds(5);
  absl::Duration backoff_initial = absl::Seconds(1);
  absl::Duration backoff_max = absl::Seconds(30);
  absl::Duration attach_timeout = absl::InfiniteDuration();
  // Exit code 0 means that the work of this worker is done, whoever has made it
  // leave; otherwise a worker may have been let go.
  bool exit_zero_is_done = false;
};

// Thread-compatible.
class PodSlot {
 public:
  enum class State {
    kWaiting,   // no pod; one is created when it is due
    kCreating,  // kCreate was decided, or the pod is pending
    kRunning,
    kDone,    // exit 0
    kGaveUp,  // failed too often, or must not be replaced
    kGone,    // forget it
  };

  // `why`: the reason of its first kCreate.
  PodSlot(std::shared_ptr<const SlotRules> rules, std::string priority,
          std::string why);
  // Of a pod that an earlier run of this master has made and that has not
  // ended.
  PodSlot(std::shared_ptr<const SlotRules> rules, const PodEvent& pod);

  State state() const { return state_; }
  bool has_pod() const;
  // It fills a slot of the job, now or soon.
  bool active() const;
  // A pod of this name exists, or may exist: its creation was reported as
  // failed, and the error may be about the answer.
  bool may_exist() const { return may_exist_; }
  // Of the present pod, else of the last one; empty and -1 before the first.
  const std::string& name() const { return name_; }
  int64_t id() const { return id_; }
  int64_t attempt() const { return attempt_; }
  const std::string& priority() const { return priority_; }
  void set_priority(const std::string& priority) { priority_ = priority; }
  PodInfo info() const;

  // When Create or OnTimer has something to do.
  absl::Time next_wake() const;
  // Create is due, and needs Name() first unless may_exist().
  bool due(absl::Time now) const;

  // Who the next pod is. A name is never used for two pods.
  void Name(int64_t id, int64_t attempt);
  void Create(absl::Time now, PodDecisions& out);

  void OnCreateFailed(const absl::Status& error, absl::Time now,
                      PodDecisions& out);
  // Its pod is pending or running.
  void OnAlive(const PodEvent& event, absl::Time now, PodDecisions& out);
  void OnEnded(const PodEvent& event, absl::Time now, PodDecisions& out);

  // From now on, its pod must attach within attach_timeout.
  void ExpectAttach(absl::Time now);
  void OnTimer(absl::Time now, const std::function<bool(int64_t id)>& attached,
               PodDecisions& out);

  // Its exit 0 will be a preemption, not the end of its work.
  void NoteLeaving() { leaving_ = true; }
  // The next end does not count as a failure.
  void ForgiveFailure() { forgiven_ = true; }
  // It hangs: killed, then replaced without counting a failure.
  void Kill(const std::string& reason, PodDecisions& out);

  // Its present pod is its last.
  void Retire() { retired_ = true; }
  // Retires it and deletes its pod.
  void Remove(const std::string& reason, PodDecisions& out);
  // Undoes Remove: the pod that is being deleted is replaced.
  void Readmit() { retired_ = false; }

 private:
  PodDecision Decide(PodDecision::Kind kind, const std::string& reason) const;
  void Delete(const std::string& reason, absl::Duration grace,
              PodDecisions& out);
  void OnRestarted(const PodEvent& event, PodDecisions& out);
  // `back_off`: the pod crashed or hung, or its node refused it; otherwise it
  // was preempted.
  void Relaunch(const std::string& reason, bool back_off, absl::Time now,
                PodDecisions& out);
  void GiveUp(const std::string& reason, PodDecisions& out);
  absl::Duration BackoffAfter(int64_t count) const;

  // Shared with the other slots of its kind; constant.
  std::shared_ptr<const SlotRules> rules_;
  State state_ = State::kWaiting;
  std::string priority_;
  std::string why_;  // reason of the next kCreate
  std::string name_;
  int64_t id_ = -1;
  int64_t attempt_ = 0;
  int64_t previous_id_ = -1;
  bool may_exist_ = false;
  // Made by an earlier run of the master.
  bool adopted_ = false;

  absl::Time not_before_ = absl::InfinitePast();
  absl::Time started_ = absl::InfinitePast();  // creation decided, then running
  absl::Time attach_by_ = absl::InfiniteFuture();
  pid_t pid_ = 0;

  int64_t failures_ = 0;
  // Of the present pod's container.
  int64_t restarts_ = 0;
  // How many times in a row pods ended soon after their start: by their own
  // fault (a crash, a hang), and by preemption.
  int64_t quick_failures_ = 0;
  int64_t quick_losses_ = 0;
  int64_t create_errors_ = 0;

  bool retired_ = false;      // not to be replaced
  bool leaving_ = false;      // the pod has announced it
  bool forgiven_ = false;     // its next end does not count
  bool deleting_ = false;     // kDelete was decided
  bool hung_ = false;         // it is deleted because it hangs
  bool terminating_ = false;  // the cluster says so
  std::string delete_reason_;
  std::string message_;             // why it does not run
  std::set<std::string> reported_;  // the messages of this pod so far
};

}  // namespace elasticdl::master
