// Which workers evaluate and which write a checkpoint, for the lanes of the
// page: remembers what was told, and says what is new.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace elasticdl::master {

// Thread-compatible; pure. No decision depends on it.
class LaneActivities {
 public:
  // Workers come to an evaluation one after the other. That the first one
  // begins, and that all are done, is told at once; what is between so often.
  static constexpr absl::Duration kSpacing = absl::Milliseconds(100);

  // Something has happened. True: who evaluates now is to be given to
  // SetEvaluators; nobody does when no evaluation is `running`.
  bool EvaluatorsDue(absl::Time now, bool running);
  // True: these are others than were told last.
  bool SetEvaluators(absl::Time now, const std::vector<int64_t>& workers);
  // When EvaluatorsDue is to be asked again.
  absl::Time next() const { return missed_ ? next_ : absl::InfiniteFuture(); }

  // The worker has the ledger of `step` and writes the model of it; it has
  // written it, or failed to. One that is given up for a newer one is not told
  // of.
  void OnSaving(int64_t worker_id, int64_t step) { saving_[worker_id] = step; }
  void OnSaved(int64_t worker_id, int64_t step);
  void Remove(int64_t worker_id) { saving_.erase(worker_id); }
  // All that write now, if these are others than before.
  std::optional<std::vector<int64_t>> TakeSavers();

 private:
  std::vector<int64_t> evaluators_;
  // EvaluatorsDue was asked too early.
  bool missed_ = false;
  absl::Time next_ = absl::InfinitePast();
  // By worker: the newest step.
  std::map<int64_t, int64_t> saving_;
  std::vector<int64_t> savers_;
};

}  // namespace elasticdl::master
