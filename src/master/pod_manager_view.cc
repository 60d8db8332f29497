// What others see of the pod manager: names, pods, the next timer.
#include <algorithm>
#include <utility>

#include "pod_manager.h"

namespace elasticdl::master {

const char* PodDecisionKindName(PodDecision::Kind kind) {
  switch (kind) {
    case PodDecision::Kind::kCreate:
      return "create";
    case PodDecision::Kind::kDelete:
      return "delete";
    case PodDecision::Kind::kEnded:
      return "ended";
    case PodDecision::Kind::kDelayed:
      return "delayed";
    case PodDecision::Kind::kGaveUp:
      return "gave_up";
  }
  return "unknown";
}

const char* JobStateName(JobState state) {
  switch (state) {
    case JobState::kRunning:
      return "running";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kStopped:
      return "stopped";
  }
  return "unknown";
}

absl::Time PodManager::next_wake() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [slot, lineage] : slots_) {
    if (lineage.state == LineageState::kWaiting) {
      next = std::min(next, lineage.not_before);
    }
    next = std::min(next, lineage.attach_by);
  }
  return next;
}

std::vector<PodInfo> PodManager::pods() const {
  std::vector<PodInfo> pods;
  for (const auto& [slot, lineage] : slots_) {
    const bool ending = lineage.deleting || lineage.terminating;
    PodInfo info;
    switch (lineage.state) {
      case LineageState::kWaiting:
        info.state = "Waiting";
        break;
      case LineageState::kCreating:
        info.state = ending ? "Terminating" : "Pending";
        break;
      case LineageState::kRunning:
        info.state = ending ? "Terminating" : "Running";
        break;
      case LineageState::kDone:
      case LineageState::kGaveUp:
        continue;
    }
    info.id = lineage.id >= 0 ? lineage.id : lineage.previous_id;
    info.name = Name(info.id);
    info.priority = lineage.priority;
    info.pid = lineage.pid;
    info.failures = lineage.failures;
    info.message = lineage.message;
    pods.push_back(std::move(info));
  }
  return pods;
}

int64_t PodManager::IdOf(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? -1 : slots_.at(it->second).id;
}

}  // namespace elasticdl::master
