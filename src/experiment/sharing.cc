#include "elasticdl/experiment/sharing.h"

#include <algorithm>
#include <map>

namespace elasticdl::experiment {
namespace {

// Indices of the jobs that are there, in order of arrival.
std::vector<size_t> Present(const Sharing& sharing,
                            const std::vector<SharedState>& jobs) {
  std::vector<size_t> present;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].phase == JobPhase::kWaiting ||
        jobs[i].phase == JobPhase::kRunning) {
      present.push_back(i);
    }
  }
  std::stable_sort(present.begin(), present.end(), [&](size_t a, size_t b) {
    return sharing.jobs[a].arrives < sharing.jobs[b].arrives;
  });
  return present;
}

std::vector<int64_t> Gang(const Sharing& sharing,
                          const std::vector<SharedState>& jobs) {
  // A gang never gives slots back: the service must always have its most.
  int64_t peak = 0;
  for (const LoadPoint& point : sharing.service) {
    peak = std::max(peak, point.slots);
  }
  int64_t left = sharing.slots - peak;
  std::vector<int64_t> workers(jobs.size(), 0);
  const std::vector<size_t> present = Present(sharing, jobs);
  for (const size_t i : present) {
    if (jobs[i].phase != JobPhase::kRunning) continue;
    workers[i] = jobs[i].workers;
    left -= workers[i];
  }
  for (const size_t i : present) {
    if (jobs[i].phase != JobPhase::kWaiting) continue;
    const int64_t want =
        std::min(sharing.jobs[i].workers, sharing.slots - peak);
    // Nor may a smaller one that came later overtake it.
    if (want > left) break;
    workers[i] = want;
    left -= want;
  }
  return workers;
}

std::vector<TimelinePoint> InOrder(std::vector<TimelinePoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const TimelinePoint& a, const TimelinePoint& b) {
                     return a.at < b.at;
                   });
  return points;
}

}  // namespace

int64_t ServiceSlots(const Sharing& sharing, double at) {
  int64_t slots = 0;
  for (const LoadPoint& point : sharing.service) {
    if (point.at <= at) slots = point.slots;
  }
  return slots;
}

Divider DividerOf(const Sharing& sharing, bool on_cluster) {
  return on_cluster && sharing.service.empty() ? Divider::kCluster
                                               : Divider::kExperiment;
}

std::vector<int64_t> Allocate(const Sharing& sharing, const std::string& policy,
                              Divider divider, double at,
                              const std::vector<SharedState>& jobs) {
  if (policy == kGang) return Gang(sharing, jobs);
  std::vector<int64_t> workers(jobs.size(), 0);
  // Each asks for all that it wants; the scheduler divides.
  if (divider == Divider::kCluster) {
    for (const size_t i : Present(sharing, jobs)) {
      workers[i] = sharing.jobs[i].workers;
    }
    return workers;
  }
  int64_t left = sharing.slots - ServiceSlots(sharing, at);
  for (const size_t i : Present(sharing, jobs)) {
    const SharedJob& job = sharing.jobs[i];
    int64_t granted = std::min(job.workers, std::max<int64_t>(left, 0));
    if (granted < job.min_workers) {
      // A running job is never taken below what it started with at least.
      granted = jobs[i].phase == JobPhase::kRunning ? job.min_workers : 0;
    }
    workers[i] = granted;
    left -= granted;
  }
  return workers;
}

int64_t MostAtOnce(const std::vector<TimelinePoint>& timeline, double seconds) {
  std::map<std::string, int64_t> workers;
  // Since when at least so many were in use, without a break.
  std::map<int64_t, double> since;
  int64_t most = 0;
  for (const TimelinePoint& point : InOrder(timeline)) {
    for (const auto& [used, from] : since) {
      if (point.at - from >= seconds) most = std::max(most, used);
    }
    workers[point.job] = point.workers;
    int64_t used = 0;
    for (const auto& [job, count] : workers) used += count;
    since.erase(since.upper_bound(used), since.end());
    for (int64_t i = 1; i <= used; ++i) since.emplace(i, point.at);
  }
  return most;
}

double SlotUtilisation(const std::vector<TimelinePoint>& timeline,
                       int64_t slots, double from, double to) {
  if (to <= from || slots <= 0) return 0;
  std::map<std::string, int64_t> workers;
  double sum = 0;
  double before = from;
  const auto add = [&](double until) {
    until = std::clamp(until, before, to);
    int64_t used = 0;
    for (const auto& [job, count] : workers) used += count;
    sum += (until - before) * static_cast<double>(used);
    before = until;
  };
  for (const TimelinePoint& point : InOrder(timeline)) {
    add(point.at);
    workers[point.job] = point.workers;
  }
  add(to);
  return sum / ((to - from) * static_cast<double>(slots));
}

}  // namespace elasticdl::experiment
