// How the slots of a machine are divided among several jobs. Pure.
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

// The number of workers that each job should have at `at`, 0 for those that do
// not run. In order of arrival,
// elastic: each gets what it wants or what is left, if that is min_workers; a
//   running one shrinks when the service needs its slots;
// gang: each starts when all that it wants is free, none before one that came
//   earlier, and keeps it. Beside a service a gang is no larger than what the
//   service leaves at its peak.
std::vector<int64_t> Allocate(const Sharing& sharing, const std::string& policy,
                              double at, const std::vector<SharedState>& jobs);

// The share of the slots in use between two times of a timeline.
double SlotUtilisation(const std::vector<TimelinePoint>& timeline,
                       int64_t slots, double from, double to);

}  // namespace elasticdl::experiment
