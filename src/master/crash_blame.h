// Decides what a worker's crash is blamed on: the task that it held, or its
// slot. Also decides how carefully tasks are granted while that is unknown.
//
//   a worker crashed                                blamed
//   ----------------------------------------------  ---------------------------
//   and held a task, with few crashes since the     the task: the relaunch is
//     last commit                                   not counted
//   and held no task                                its slot
//   repeatedly, without a commit in between or      its slot: nothing works at
//     without a task that was quarantined           all
//
// A worker that reads ahead holds several tasks, and it is not known which of
// them is bad. So nothing is blamed at first; the tasks are granted again one
// at a time (*carefully*) until all of them are done, so that the next crash
// has only one possible cause.
#pragma once

#include <cstdint>
#include <set>

#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// Thread-compatible.
class CrashBlame {
 public:
  // `task_max_failures`: a task that fails this often is quarantined.
  explicit CrashBlame(int64_t task_max_failures)
      : to_convict_(task_max_failures + 1) {}

  // A worker crashed; `tasks` of its tasks were returned.
  void OnCrash(int64_t worker_id, int tasks);
  // Until this many records are done, and until the running evaluation (if
  // there is one) has ended, tasks are granted one at a time.
  void BeCareful(int64_t records_done, bool evaluating);
  // Records went into the model: something works.
  void OnCommit() { crashes_without_commit_ = 0; }
  // A task was quarantined after this many failures: they are explained.
  void OnQuarantined(int64_t failures);
  void OnEvaluationEnd() { careful_evaluation_ = false; }

  // Was the crash of this worker counted against its task? Then it does not
  // count against its slot.
  bool IsTaskBlamed(int64_t worker_id) const {
    return blamed_on_task_.count(worker_id) != 0;
  }
  bool IsCareful(v1::TaskType type, int64_t records_done) const;
  // There was a crash that no task was blamed for.
  bool suspects_tasks() const { return careful_until_ > 0; }

 private:
  const int64_t to_convict_;
  std::set<int64_t> blamed_on_task_;
  int64_t crashes_without_commit_ = 0;
  // Crashes for which no task was quarantined (yet).
  int64_t unproven_crashes_ = 0;
  int64_t careful_until_ = 0;
  bool careful_evaluation_ = false;
};

}  // namespace elasticdl::master
