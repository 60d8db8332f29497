// Which workers have been silent on their task for too long.
#include <algorithm>

#include "task_manager.h"

namespace elasticdl::master {
namespace {

// The original's rule: generous, because the first tasks of a job load data and
// warm caches, and a false alarm costs a worker.
constexpr absl::Duration kShortestLimit = absl::Seconds(300);
constexpr int kLongestTaskFactor = 3;

}  // namespace

int64_t TaskManager::TaskInUse(const Worker& worker) const {
  // Training waits while the worker does anything else.
  for (const int64_t task_id : worker.tasks) {
    if (held_.at(task_id).type != v1::TRAINING) return task_id;
  }
  return worker.tasks.empty() ? 0 : worker.tasks.front();
}

absl::Duration TaskManager::Limit(v1::TaskType type) const {
  if (options_.task_timeout > absl::ZeroDuration()) {
    return options_.task_timeout;
  }
  const auto it = longest_.find(type);
  if (it == longest_.end()) return kShortestLimit;
  return std::max(kShortestLimit, kLongestTaskFactor * it->second);
}

std::optional<OverdueTask> TaskManager::Watched(int64_t worker_id,
                                                const Worker& worker) const {
  const int64_t task_id = TaskInUse(worker);
  if (task_id == 0) return std::nullopt;
  OverdueTask task;
  task.worker_id = worker_id;
  task.task_id = task_id;
  task.type = held_.at(task_id).type;
  task.limit = Limit(task.type);
  if (task.type == v1::TRAINING &&
      (EvaluationRunning() || !stop_reason_.empty())) {
    return std::nullopt;
  }
  return task;
}

std::vector<OverdueTask> TaskManager::Expire(absl::Time now) const {
  std::vector<OverdueTask> overdue;
  for (const auto& [worker_id, worker] : workers_) {
    std::optional<OverdueTask> task = Watched(worker_id, worker);
    if (!task.has_value()) continue;
    task->silent = now - worker.last_report;
    if (task->silent >= task->limit) overdue.push_back(*task);
  }
  return overdue;
}

absl::Time TaskManager::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [worker_id, worker] : workers_) {
    const std::optional<OverdueTask> task = Watched(worker_id, worker);
    if (task.has_value()) {
      next = std::min(next, worker.last_report + task->limit);
    }
  }
  return next;
}

void TaskManager::RestartClocks(absl::Time now) {
  for (auto& [worker_id, worker] : workers_) {
    worker.in_use_since = worker.last_report = now;
  }
}

}  // namespace elasticdl::master
