// Summary of a timeline: how each worker spent its time, and which workers were
// stragglers.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace elasticdl::trace {

struct TimelineSummary {
  struct Worker {
    // By the name of the kind, of the training thread; and of other threads.
    std::map<std::string, double> seconds;
    std::map<std::string, double> beside;
    int64_t steps = 0;
    // Steps at which it came last, and how long all others together waited for
    // it.
    int64_t last = 0;
    double waited_for = 0;
    // When its first span begins and its last one ends.
    double begin = 0;
    double end = 0;
    int64_t dropped = 0;
  };
  std::map<int64_t, Worker> workers;
  // Steps with several workers, and the time between the first and the last of
  // them.
  int64_t shared_steps = 0;
  double spread_seconds = 0;
  int64_t events = 0;
  // The job did not get to write the end, or the file was full.
  bool complete = false;
};

// Reads a file of TimelineFile, one event per line. `name` is for errors, which
// name the line.
absl::StatusOr<TimelineSummary> SummarizeTimeline(std::istream& in,
                                                  const std::string& name);
// As text for people.
std::string DescribeTimeline(const TimelineSummary& summary);

}  // namespace elasticdl::trace
