// Workers that were told to begin with the state that a lost one has left. If
// they crash again and again before they get anywhere, the state is to blame,
// and has to be given up.
//
// A crash before the world is level can only come from the state. A later one
// may come from the data, too: a task that crashes its worker so often is
// quarantined first (CrashBlame). Workers that were killed do not count.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace elasticdl::master {

// Thread-compatible.
class KeptHeirs {
 public:
  // `task_max_failures`: a task that fails this often is quarantined.
  explicit KeptHeirs(int64_t task_max_failures);

  // The next world is to begin with the state of this step.
  void OnChosen(int64_t lineage, int64_t step);
  // No world begins with it any more.
  void Forget() { OnChosen(0, -1); }
  // A member of a world that begins with it.
  void OnPrepared(int64_t worker_id, int64_t generation) {
    heirs_[worker_id] = generation;
  }
  void OnLevel(int64_t generation) { level_.insert(generation); }
  // The model is at this step: the state was good for something.
  void OnCommit(int64_t step);
  void OnCrash(int64_t worker_id);

  // Was the crash of this worker counted against the state that it took over?
  // Then it does not count against its slot.
  bool IsStateBlamed(int64_t worker_id) const {
    return blamed_on_state_.count(worker_id) != 0;
  }
  // Why the state is to be given up; empty: it is not.
  std::string Verdict() const;

 private:
  const int64_t most_crashes_;
  int64_t lineage_ = 0;
  int64_t step_ = -1;
  // The worlds that began with the state: of each worker the last one; those
  // that became level; those with a member that crashed.
  std::map<int64_t, int64_t> heirs_;
  std::set<int64_t> level_;
  std::set<int64_t> crashed_;
  std::set<int64_t> blamed_on_state_;
};

}  // namespace elasticdl::master
