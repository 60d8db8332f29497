// How the slots of a machine or a cluster are divided among several jobs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elasticdl/experiment/measure.h"
#include "elasticdl/experiment/plan.h"

namespace elasticdl::experiment {

enum class JobPhase { kNotArrived, kWaiting, kRunning, kDone };

struct SharedState {
  JobPhase phase = JobPhase::kNotArrived;
  // Of a running job.
  int64_t workers = 0;
};

// How many slots the service needs at `at`; 0 before its first point.
int64_t ServiceSlots(const Sharing& sharing, double at);

// Who divides the slots.
enum class Divider {
  kExperiment,
  // Elastic jobs ask for all that they want, and the cluster starts what fits.
  kCluster,
};
// On a cluster, its scheduler, if it knows all that takes slots: the service is
// only a number.
Divider DividerOf(const Sharing& sharing, bool on_cluster);

// The number of workers that each job should have at `at`, 0 for those that do
// not run. With kExperiment, in order of arrival,
// elastic: each gets what it wants or what is left, if that is min_workers; a
//   running one shrinks when the service needs its slots;
// gang: each starts when all that it wants is free, none before one that came
//   earlier, and keeps it. Beside a service a gang is no larger than what the
//   service leaves at its peak.
// With kCluster an elastic job has all that it wants from its arrival on.
std::vector<int64_t> Allocate(const Sharing& sharing, const std::string& policy,
                              Divider divider, double at,
                              const std::vector<SharedState>& jobs);

// The largest number of slots that was in use for `seconds` or longer. Pods of
// a job that ends overlap with those of the next for a moment.
int64_t MostAtOnce(const std::vector<TimelinePoint>& timeline, double seconds);

// The share of the slots in use between two times of a timeline.
double SlotUtilisation(const std::vector<TimelinePoint>& timeline,
                       int64_t slots, double from, double to);

}  // namespace elasticdl::experiment
