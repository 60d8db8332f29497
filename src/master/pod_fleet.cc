#include "pod_fleet.h"

#include <algorithm>
#include <set>

namespace elasticdl::master {
namespace {

constexpr char kHigh[] = "high";
constexpr char kLow[] = "low";

// Least loss first when there are too many workers: no pod, not running yet,
// youngest.
std::pair<int, int64_t> LossOf(const PodSlot& slot) {
  const int rank = !slot.has_pod()                             ? 0
                   : slot.state() == PodSlot::State::kCreating ? 1
                                                               : 2;
  return {rank, -slot.id()};
}

}  // namespace

PodFleet::PodFleet(Options options)
    : rules_(std::make_shared<const SlotRules>(std::move(options.rules))),
      priority_(std::move(options.priority)),
      target_(options.target),
      next_id_(options.first_id) {}

// Questions -------------------------------------------------------------------

PodSlot* PodFleet::Find(const std::string& name) {
  for (auto& [number, slot] : slots_) {
    if (slot.may_exist() && slot.name() == name) return &slot;
  }
  return nullptr;
}

PodSlot* PodFleet::FindById(int64_t id) {
  for (auto& [number, slot] : slots_) {
    if (slot.may_exist() && slot.id() == id) return &slot;
  }
  return nullptr;
}

int64_t PodFleet::num_active() const {
  return std::count_if(slots_.begin(), slots_.end(),
                       [](const auto& slot) { return slot.second.active(); });
}

bool PodFleet::all_gone() const {
  return std::none_of(slots_.begin(), slots_.end(),
                      [](const auto& slot) { return slot.second.may_exist(); });
}

absl::Time PodFleet::next_wake() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [number, slot] : slots_) {
    next = std::min(next, slot.next_wake());
  }
  return next;
}

void PodFleet::AppendPods(std::vector<PodInfo>& pods) const {
  for (const auto& [number, slot] : slots_) {
    if (slot.has_pod() || slot.state() == PodSlot::State::kWaiting) {
      pods.push_back(slot.info());
    }
  }
}

// How many --------------------------------------------------------------------

void PodFleet::Adopt(const PodEvent& pod) {
  if (pod.id < 0) return;
  next_id_ = std::max(next_id_, pod.id + 1);
  int64_t& next_attempt = next_attempt_[pod.id];
  next_attempt = std::max(next_attempt, pod.attempt + 1);
  if (IsFinal(pod.phase) || Find(pod.name) != nullptr) return;
  const int64_t number = servers() ? pod.id : next_slot_++;
  // Of two pods of one server the first counts. There are no two: the next one
  // is made when the one before has ended.
  slots_.emplace(number, PodSlot(rules_, pod));
  adopted_ = true;
}

void PodFleet::Start(absl::Time now, PodDecisions& out) {
  for (auto& [number, slot] : slots_) slot.ExpectAttach(now);
  AddMissing(adopted_ ? "missing after a restart of the master"
                      : "start of the job");
  // All at once, high priorities are spread evenly over the slots; later ones
  // only fill up the number of each.
  if (!adopted_ && priority_.high_fraction >= 0) {
    const std::set<int64_t> high =
        HighPrioritySlots(target_, priority_.high_fraction);
    for (auto& [number, slot] : slots_) {
      slot.set_priority(high.count(number) != 0 ? kHigh : kLow);
    }
  }
  RemoveSurplus("more pods than asked for", out);
  Sweep();
  CreateDue(now, out);
}

void PodFleet::SetTarget(int64_t target, const std::string& why, absl::Time now,
                         PodDecisions& out) {
  target_ = target;
  AddMissing(why);
  RemoveSurplus(why, out);
  Sweep();
  CreateDue(now, out);
}

// A slot that is added later is high when there are too few of those.
std::string PodFleet::NextPriority() const {
  if (priority_.high_fraction < 0) return priority_.all;
  const int64_t num_high =
      std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) {
        return slot.second.active() && slot.second.priority() == kHigh;
      });
  return num_high < NumHighPriority(target_, priority_.high_fraction) ? kHigh
                                                                      : kLow;
}

void PodFleet::AddMissing(const std::string& why) {
  if (servers()) return AddMissingServers(why);
  for (int64_t missing = target_ - num_active(); missing > 0; --missing) {
    slots_.emplace(next_slot_++, PodSlot(rules_, NextPriority(), why));
  }
}

void PodFleet::AddMissingServers(const std::string& why) {
  for (int64_t id = 0; id < target_; ++id) {
    const auto found = slots_.find(id);
    if (found == slots_.end()) {
      slots_.emplace(id, PodSlot(rules_, NextPriority(), why));
    } else {
      // Scaled down and up again before the pod has ended. Its successor must
      // wait for that: two servers of one id would both answer.
      found->second.Readmit();
    }
  }
}

PodFleet::Slots::iterator PodFleet::WorstWorker() {
  auto worst = slots_.end();
  for (auto it = slots_.begin(); it != slots_.end(); ++it) {
    if (it->second.active() && (worst == slots_.end() ||
                                LossOf(it->second) <= LossOf(worst->second))) {
      worst = it;
    }
  }
  return worst;
}

void PodFleet::RemoveSurplus(const std::string& why, PodDecisions& out) {
  if (servers()) {
    // From the highest id down: workers address servers by number, so those
    // that stay must be the first ones.
    for (auto it = slots_.rbegin(); it != slots_.rend(); ++it) {
      if (it->first >= target_ && it->second.active()) {
        it->second.Remove(why, out);
      }
    }
    return;
  }
  for (int64_t surplus = num_active() - target_; surplus > 0; --surplus) {
    WorstWorker()->second.Remove(why, out);
  }
}

// Events ----------------------------------------------------------------------

void PodFleet::NameNext(PodSlot& slot, int64_t number) {
  if (servers()) {
    slot.Name(number, next_attempt_[number]++);
  } else {
    slot.Name(next_id_++, /*attempt=*/0);
  }
}

void PodFleet::Sweep() {
  for (auto it = slots_.begin(); it != slots_.end();) {
    it = it->second.state() == PodSlot::State::kGone ? slots_.erase(it)
                                                     : std::next(it);
  }
}

void PodFleet::CreateDue(absl::Time now, PodDecisions& out) {
  for (auto& [number, slot] : slots_) {
    if (!slot.due(now)) continue;
    if (!slot.may_exist()) NameNext(slot, number);
    slot.Create(now, out);
  }
}

void PodFleet::OnTimer(absl::Time now,
                       const std::function<bool(int64_t id)>& attached,
                       PodDecisions& out) {
  for (auto& [number, slot] : slots_) slot.OnTimer(now, attached, out);
  CreateDue(now, out);
}

void PodFleet::Retire(const std::string& why,
                      const std::function<bool(int64_t id)>& stays,
                      PodDecisions& out) {
  for (auto& [number, slot] : slots_) {
    slot.Retire();
    if (slot.state() != PodSlot::State::kRunning || !stays(slot.id())) {
      slot.Remove(why, out);
    }
  }
  Sweep();
}

void PodFleet::RemoveAll(const std::string& why, PodDecisions& out) {
  for (auto& [number, slot] : slots_) slot.Remove(why, out);
  Sweep();
}

}  // namespace elasticdl::master
