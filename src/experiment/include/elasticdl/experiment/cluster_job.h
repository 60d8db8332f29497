// What an experiment knows of a job on a cluster: its name, its flags, and what
// the log of its master says. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "elasticdl/experiment/measure.h"
#include "elasticdl/experiment/plan.h"

namespace elasticdl::experiment {

// Do these flags make a job on a cluster?
bool OnCluster(const Settings& flags);

// A valid name for such a job: the plan's and the run's, and the job's if
// several share the cluster, else "".
std::string ClusterJobName(const std::string& plan, const std::string& run,
                           const std::string& job);

// What a run would need that no cluster has: peers, SIGSTOP. INVALID_ARGUMENT
// says what works instead.
absl::Status CheckOnCluster(const Plan& plan, const Run& run);

// When `elasticdl kill --json`, which printed `output`, asked for the first
// deletion; `otherwise` if it does not say.
double KillTime(absl::string_view output, double otherwise);

// The log of a master that writes its events and its audit to its standard
// output, line by line. Thread-compatible.
class MasterLog {
 public:
  struct Lines {
    std::vector<std::string> events;
    std::vector<std::string> audit;
  };
  // The lines that these bytes complete. Other lines are for people and are
  // passed over.
  Lines Take(absl::string_view bytes);

  // Lines that were an event or part of the audit, but are no longer whole.
  int64_t damaged() const { return damaged_; }
  // How often a master has begun to write: more than once if it was restarted.
  int64_t starts() const { return starts_; }
  // Has it told the end of the job?
  bool ended() const { return ended_; }
  // Records in the model, by the last report.
  int64_t records() const { return records_; }

 private:
  void TakeLine(absl::string_view line, Lines* lines);

  std::string rest_;
  int64_t damaged_ = 0;
  int64_t starts_ = 0;
  bool ended_ = false;
  int64_t records_ = 0;
};

// What an audit that came through a log proves: logs may lose lines, files do
// not.
LedgerCheck CheckLogLedger(const std::string& audit, const MasterLog& log,
                           bool finished);

// How far the clock of a job is behind the one here, from when its events were
// seen. Thread-compatible.
class ClockOffset {
 public:
  // Both in seconds since 1970, by their own clocks.
  void OnEvent(double time, double seen);
  // Add it to a time of the job for the time here. 0 unless the clocks differ
  // by more than what a log may take to arrive.
  double seconds() const;

 private:
  bool any_ = false;
  // The least; it consists of the difference and of the way here.
  double least_ = 0;
};

}  // namespace elasticdl::experiment
