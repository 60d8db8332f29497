// Departed workers: workers that were lost or left and whose tasks are not
// returned yet.
//
// The tasks of such a worker are returned when two things are known: which of
// its records are in the model (*settled*: reported by the next world), and how
// it ended (*explained*: the exit status of its pod; a crash counts against a
// task, a preemption does not). They become known in any order.
//
//   state       event                                    next
//   ----------  ---------------------------------------  -----------
//   (none)      its stream broke                         kOpen
//   (none)      it was evicted, or left in order         kExplained
//   kOpen       a world is level: its totals are known,  kSettled
//               or nobody has the model any more
//   kOpen       its pod has ended, or the deadline is    kExplained
//               over: it counts as preempted
//   kSettled    its pod has ended, or the deadline       kClosed
//   kExplained  a world is level, or there is no model   kClosed
//   kClosed     TakeClosed                               (none)
//
// A worker that held no training data has nothing to settle: it starts as
// kSettled or kClosed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "task_types.h"

namespace elasticdl::master {

// Thread-compatible.
class DepartedWorkers {
 public:
  enum class State { kOpen, kSettled, kExplained, kClosed };
  struct Departed {
    bool settled = false;
    // How it ended; nothing = not explained yet.
    std::optional<WorkerLoss> loss;
    std::string reason;
    // Then it is explained: preempted.
    absl::Time deadline = absl::InfiniteFuture();

    State state() const;
  };

  void Add(int64_t id, const Departed& departed) { departed_[id] = departed; }
  void Settle(int64_t id);
  void SettleAll();
  // How the worker ended. The first explanation counts; true: this was it.
  bool Explain(int64_t id, WorkerLoss loss, const std::string& reason);
  // Explains those whose deadline is over; their ids and reasons.
  std::vector<std::pair<int64_t, std::string>> Expire(absl::Time now);
  absl::Time next_deadline() const;

  // Those that are closed, by id. They are forgotten.
  std::vector<std::pair<int64_t, Departed>> TakeClosed();
  void Forget(int64_t id) { departed_.erase(id); }

  bool empty() const { return departed_.empty(); }
  bool Contains(int64_t id) const { return departed_.count(id) != 0; }
  const std::map<int64_t, Departed>& all() const { return departed_; }

 private:
  std::map<int64_t, Departed> departed_;
};

}  // namespace elasticdl::master
