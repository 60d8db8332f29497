// The slots of one kind of pod: how many there are, their ids and priorities,
// and which of them are removed when there are too many.
//
//             workers                          servers
//   --------  -------------------------------  ------------------------------
//   ids       the next number, never reused    0 .. target-1; a relaunched
//                                              server keeps its id
//   surplus   without a pod first, then        the highest ids
//             pending ones, then the youngest
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "pod_decision.h"
#include "pod_slot.h"
#include "worker_priority.h"

namespace elasticdl::master {

// Thread-compatible.
class PodFleet {
 public:
  struct Options {
    SlotRules rules;
    int64_t target = 0;
    WorkerPriority priority;
    // Workers: where ids go on after a restart of the master.
    int64_t first_id = 0;
  };

  explicit PodFleet(Options options);

  // Before Start: a pod of an earlier run of this master. Its id (servers: its
  // attempt) is not used again; it fills a slot unless it has ended.
  void Adopt(const PodEvent& pod);
  // As many as are missing; adopted ones beyond the target are removed.
  void Start(absl::Time now, PodDecisions& out);
  void SetTarget(int64_t target, const std::string& why, absl::Time now,
                 PodDecisions& out);

  // nullptr when there is no such pod. After what is done to it: Sweep.
  PodSlot* Find(const std::string& name);
  PodSlot* FindById(int64_t id);
  // Forgets slots that are gone.
  void Sweep();
  void CreateDue(absl::Time now, PodDecisions& out);

  void OnTimer(absl::Time now, const std::function<bool(int64_t id)>& attached,
               PodDecisions& out);
  // InfiniteFuture for never.
  absl::Time next_wake() const;

  // Nothing is relaunched any more. Pods that are not running, or that are not
  // in `stays`, are deleted; the others end by themselves.
  void Retire(const std::string& why,
              const std::function<bool(int64_t id)>& stays, PodDecisions& out);
  // Deletes all pods.
  void RemoveAll(const std::string& why, PodDecisions& out);

  int64_t target() const { return target_; }
  // Workers: the id that the next one gets.
  int64_t next_id() const { return next_id_; }
  // No slot, whatever state it is in.
  bool empty() const { return slots_.empty(); }
  // Slots that fill a slot, now or soon.
  int64_t num_active() const;
  // No pod exists as far as is known.
  bool all_gone() const;
  void AppendPods(std::vector<PodInfo>& pods) const;

 private:
  using Slots = std::map<int64_t, PodSlot>;

  bool servers() const { return rules_->type == PodType::kPs; }
  std::string NextPriority() const;
  void AddMissing(const std::string& why);
  void AddMissingServers(const std::string& why);
  void RemoveSurplus(const std::string& why, PodDecisions& out);
  Slots::iterator WorstWorker();
  void NameNext(PodSlot& slot, int64_t number);

  // Shared with the slots; constant.
  const std::shared_ptr<const SlotRules> rules_;
  const WorkerPriority priority_;
  int64_t target_;
  int64_t next_id_;
  bool adopted_ = false;
  // By slot: for a server its id, for workers any number.
  Slots slots_;
  int64_t next_slot_ = 0;
  // Servers: the attempt of the next pod of each id.
  std::map<int64_t, int64_t> next_attempt_;
};

}  // namespace elasticdl::master
