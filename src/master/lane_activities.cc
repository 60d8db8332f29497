#include "lane_activities.h"

namespace elasticdl::master {

bool LaneActivities::EvaluatorsDue(absl::Time now, bool running) {
  if (!running) {
    missed_ = false;
    return !evaluators_.empty();
  }
  missed_ = now < next_;
  return !missed_;
}

bool LaneActivities::SetEvaluators(absl::Time now,
                                   const std::vector<int64_t>& workers) {
  // The next evaluation begins with a line of its own.
  next_ = workers.empty() ? absl::InfinitePast() : now + kSpacing;
  if (workers == evaluators_) return false;
  evaluators_ = workers;
  return true;
}

void LaneActivities::OnSaved(int64_t worker_id, int64_t step) {
  const auto found = saving_.find(worker_id);
  if (found != saving_.end() && found->second <= step) saving_.erase(found);
}

std::optional<std::vector<int64_t>> LaneActivities::TakeSavers() {
  if (saving_.empty() && savers_.empty()) return std::nullopt;
  std::vector<int64_t> savers;
  for (const auto& [worker_id, step] : saving_) savers.push_back(worker_id);
  if (savers == savers_) return std::nullopt;
  savers_ = savers;
  return savers;
}

}  // namespace elasticdl::master
