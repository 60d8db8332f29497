// What is known of a running job from its event log, and what its trace does to
// it next. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "elasticdl/experiment/trace.h"

namespace elasticdl::experiment {

// A worker or a server of a job.
struct JobPod {
  std::string name;
  // 0 on a cluster.
  pid_t pid = 0;
};

// Thread-compatible. Times are seconds since 1970, as in the event log.
class JobView {
 public:
  // `workers`: with so many members the job is complete.
  explicit JobView(int64_t workers) : wanted_(workers), target_(workers) {}

  // A line of the event log; what is not understood is passed over.
  void OnLine(absl::string_view line);

  // A process that was seen to end, a pod that was deleted: a job may say so
  // later, or never.
  void OnProcessEnded(pid_t pid);
  void OnPodEnded(const std::string& name);

  // Has it done a step with all its workers?
  bool started() const { return started_at_ > 0; }
  double started_at() const { return started_at_; }
  // Has it done a step at all?
  double first_step_at() const { return first_step_at_; }
  double last_event_at() const { return last_event_at_; }
  int64_t step() const { return step_; }
  int64_t target_workers() const { return target_; }
  // The workers that train, by rank; the servers, by id.
  std::vector<JobPod> Workers() const;
  std::vector<JobPod> Servers() const;
  // Members of the present world.
  int64_t num_members() const { return static_cast<int64_t>(members_.size()); }

 private:
  const int64_t wanted_;
  int64_t target_;
  double started_at_ = 0;
  double first_step_at_ = 0;
  double last_event_at_ = 0;
  int64_t step_ = 0;
  std::map<int64_t, JobPod> workers_;
  std::map<int64_t, JobPod> servers_;
  std::vector<int64_t> members_;
};

// Something that is due.
struct Delivery {
  ActionKind kind = ActionKind::kKill;
  // Send `signal` to `pods`, or, if it is 0, change the number of workers
  // (kJoin, kLeave, kWorkers) or servers (kServers) to `target`.
  int signal = 0;
  std::vector<JobPod> pods;
  int64_t target = 0;
};

// Thread-compatible. Times are those of the view.
class TraceDriver {
 public:
  explicit TraceDriver(const std::vector<Action>& actions);

  // What is due at `now`; each delivery comes once. An action on workers waits
  // until there are some.
  std::vector<Delivery> Due(double now, const JobView& view);
  // When something is due at the latest unless the job reports something new;
  // infinity: not before it does.
  double NextTime(const JobView& view) const;

 private:
  struct Wakeup {
    double at = 0;
    std::vector<JobPod> pods;
  };

  bool Deliver(const Action& action, double now, const JobView& view,
               std::vector<Delivery>* out);

  // In order of time and of step.
  std::vector<Action> timed_;
  std::vector<Action> stepped_;
  size_t next_timed_ = 0;
  size_t next_stepped_ = 0;
  std::vector<Wakeup> stopped_;
};

}  // namespace elasticdl::experiment
