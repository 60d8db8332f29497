// The controller's part in the lanes of the page: who evaluates, who saves.
#include <algorithm>
#include <vector>

#include "job_controller.h"

namespace elasticdl::master {

void JobController::TellActivities(absl::Time now) {
  const bool evaluates = evaluation_.running();
  if (activities_.EvaluatorsDue(now, evaluates)) {
    const std::vector<int64_t> workers =
        evaluates ? Evaluators() : std::vector<int64_t>();
    if (activities_.SetEvaluators(now, workers)) {
      observer_.OnEvaluating(evaluation_.version(), workers);
    }
  }
  if (const auto savers = activities_.TakeSavers()) {
    observer_.OnSaving(*savers);
  }
}

// Members of a world evaluate together: who is done waits for the others.
std::vector<int64_t> JobController::Evaluators() const {
  std::vector<int64_t> ids;
  for (const auto& [connection, worker] : registry_.workers()) {
    if (worker.waiting || tasks_.NumHeld(worker.id, v1::EVALUATION) > 0) {
      ids.push_back(worker.id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::optional<int64_t> JobController::WorkerAt(ConnectionId connection) const {
  const auto found = registry_.workers().find(connection);
  if (found == registry_.workers().end()) return std::nullopt;
  return found->second.id;
}

}  // namespace elasticdl::master
