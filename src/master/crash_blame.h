// Who is to blame for the crash of a worker: the task that it held, or its slot
// among the pods. And how carefully tasks are handed out while that is open.
//
//   a worker crashed                                blamed
//   ----------------------------------------------  ---------------------------
//   and held a task, with few crashes since the     the task: the relaunch is
//     last commit                                   free
//   and held no task                                its slot
//   again and again without any commit between,     its slot: nothing works at
//     or without any task that was set aside        all
//
// A worker that read ahead holds several tasks, and it is not known which of
// them is bad. So nobody is blamed at first; the tasks are handed out again one
// at a time (*carefully*) until all of them are done, and then a crash is
// proof.
#pragma once

#include <cstdint>
#include <set>

#include "elasticdl/v1/master.pb.h"

namespace elasticdl::master {

// Thread-compatible.
class CrashBlame {
 public:
  // `task_max_failures`: so often a task may fail until it is set aside.
  explicit CrashBlame(int64_t task_max_failures)
      : to_convict_(task_max_failures + 1) {}

  // A worker crashed; `tasks` were taken back from it.
  void OnCrash(int64_t worker_id, int tasks);
  // Until so many records are done, and until the evaluation that runs (if one
  // does) has ended, tasks are handed out one at a time.
  void BeCareful(int64_t records_done, bool evaluating);
  // Records went into the model: something works.
  void OnCommit() { crashes_without_commit_ = 0; }
  // A task was set aside after so many failures: they are explained.
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
  // Crashes for which no task was set aside (yet).
  int64_t unproven_crashes_ = 0;
  int64_t careful_until_ = 0;
  bool careful_evaluation_ = false;
};

}  // namespace elasticdl::master
