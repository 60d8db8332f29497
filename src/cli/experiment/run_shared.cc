// Runs jobs that share the slots of a machine or a cluster, by a policy.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/experiment/cluster_job.h"
#include "elasticdl/experiment/sharing.h"
#include "experiment/live_job.h"
#include "experiment/run_one.h"

namespace elasticdl::cli {
namespace {

using experiment::JobPhase;
using experiment::Plan;
using experiment::Run;
using experiment::RunResult;
using experiment::SharedJob;
using experiment::SharedState;

// A job that ends and the next one may overlap for so many seconds.
constexpr double kOverlap = 3;

// All jobs of a run, from the first arrival to the last end. Thread-compatible.
class SharedRun {
 public:
  SharedRun(const Plan& plan, const Run& run, RunFolders folders,
            ExperimentSignals& signals)
      : plan_(plan),
        run_(run),
        folders_(std::move(folders)),
        signals_(signals),
        on_cluster_(experiment::OnCluster(run.flags)),
        divider_(experiment::DividerOf(plan.sharing, on_cluster_)),
        result_(NewResult(run)),
        states_(plan.sharing.jobs.size()),
        jobs_(plan.sharing.jobs.size()),
        ends_(plan.sharing.jobs.size(), 0) {}

  absl::StatusOr<RunResult> Execute() {
    while (!Done()) {
      const double at = WallSeconds() - result_.began;
      Arrive(at);
      if (failure_.empty() && !cancelled_) Assign(at);
      if (at > plan_.timeout && failure_.empty()) {
        Fail(absl::StrCat("it took longer than ", plan_.timeout, " s",
                          trouble_.empty() ? "" : ": ", trouble_));
      }
      if (at >= kill_at_) {
        StopAll();
        kill_at_ = kNever;
      }
      Wait(NextTime(at) - at);
    }
    // Not when a job ends: the next one need not wait for that.
    for (const auto& job : jobs_) {
      if (job != nullptr) TellError(job->CleanUp());
    }
    if (cancelled_) return absl::CancelledError("interrupted");
    Judge();
    return std::move(result_);
  }

 private:
  bool Done() const {
    const bool ending = cancelled_ || !failure_.empty();
    return std::all_of(states_.begin(), states_.end(),
                       [&](const SharedState& state) {
                         return state.phase == JobPhase::kDone ||
                                (ending && state.phase != JobPhase::kRunning);
                       });
  }

  void Arrive(double at) {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_[i].phase == JobPhase::kNotArrived &&
          plan_.sharing.jobs[i].arrives <= at) {
        states_[i].phase = JobPhase::kWaiting;
      }
    }
  }

  // Shrinks first, so that the slots are free for those that start or grow.
  void Assign(double at) {
    const std::vector<int64_t> workers =
        experiment::Allocate(plan_.sharing, run_.policy, divider_, at, states_);
    for (const bool shrink : {true, false}) {
      for (size_t i = 0; i < workers.size(); ++i) {
        if (workers[i] == states_[i].workers || workers[i] == 0) continue;
        if ((workers[i] < states_[i].workers) == shrink) {
          Change(i, workers[i]);
        }
      }
    }
  }

  void Change(size_t i, int64_t workers) {
    if (states_[i].phase == JobPhase::kRunning) {
      // A job that is just starting is asked again when it reports something.
      const absl::Status status = jobs_[i]->Scale(workers, 0);
      if (status.ok()) states_[i].workers = workers;
      if (!status.ok() && !absl::IsUnavailable(status) &&
          !absl::IsFailedPrecondition(status)) {
        Fail(std::string(status.message()));
      }
      trouble_ = std::string(status.message());
      return;
    }
    const SharedJob& spec = plan_.sharing.jobs[i];
    LiveJobOptions options;
    options.folder = JoinPath(folders_.run, spec.name);
    options.notes = folders_.notes;
    options.name =
        on_cluster_ ? experiment::ClusterJobName(plan_.name, run_.id, spec.name)
                    : absl::StrCat("exp-", run_.id, "-", spec.name);
    options.peer = experiment::kElasticdl;
    options.flags = run_.flags;
    for (const auto& [name, value] : spec.flags) options.flags[name] = value;
    options.workers = workers;
    auto job = LiveJob::Start(options);
    if (!job.ok()) return Fail(std::string(job.status().message()));
    jobs_[i] = *std::move(job);
    states_[i] = {JobPhase::kRunning, workers};
  }

  double NextTime(double at) const {
    double next =
        std::min(kill_at_, plan_.timeout > at ? plan_.timeout : kNever);
    for (size_t i = 0; i < states_.size(); ++i) {
      const double arrives = plan_.sharing.jobs[i].arrives;
      if (states_[i].phase == JobPhase::kNotArrived) {
        next = std::min(next, arrives);
      }
    }
    for (const experiment::LoadPoint& point : plan_.sharing.service) {
      if (point.at > at) next = std::min(next, point.at);
    }
    return next;
  }

  void Wait(double seconds) {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    std::vector<size_t> running;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (states_[i].phase != JobPhase::kRunning) continue;
      fds.push_back({jobs_[i]->end_fd(), POLLIN, 0});
      fds.push_back({jobs_[i]->events_fd(), POLLIN, 0});
      running.push_back(i);
    }
    const int timeout =
        seconds > 1e6
            ? -1
            : static_cast<int>(std::ceil(std::max(0.0, seconds) * 1000));
    if (poll(fds.data(), fds.size(), timeout) < 0) return;
    for (size_t k = 0; k < running.size(); ++k) {
      const size_t i = running[k];
      if (fds[2 * k + 2].revents != 0) jobs_[i]->ReadEvents();
      if (fds[2 * k + 1].revents != 0) End(i);
    }
    if (fds[0].revents != 0 && signals_.Take()) {
      cancelled_ = true;
      BeginStop();
    }
  }

  void End(size_t i) {
    ends_[i] = WallSeconds() - result_.began;
    jobs_[i]->Reap();
    jobs_[i]->ReadEvents();
    states_[i] = {JobPhase::kDone, 0};
    if (jobs_[i]->exit_code() != 0 && !cancelled_) {
      Fail(absl::StrCat("job ", plan_.sharing.jobs[i].name, ": exit code ",
                        jobs_[i]->exit_code(), ": ", jobs_[i]->LastOutput()));
    }
  }

  void Fail(const std::string& reason) {
    if (failure_.empty()) failure_ = reason;
    if (kill_at_ == kNever) BeginStop();
  }

  // What does not end is killed; a second request to stop does that.
  void BeginStop() {
    StopAll();
    kill_at_ = WallSeconds() - result_.began + kStopSeconds;
  }

  void StopAll() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (states_[i].phase == JobPhase::kRunning) jobs_[i]->Stop();
    }
  }

  void Judge() {
    experiment::SharedMeasured& shared = result_.shared;
    result_.ledger = "exact";
    double first = kNever;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const SharedJob& spec = plan_.sharing.jobs[i];
      first = std::min(first, spec.arrives);
      if (jobs_[i] == nullptr) continue;
      if (!on_cluster_) result_.cpu_seconds += jobs_[i]->cpu_seconds();
      // By the clock here.
      const double offset = jobs_[i]->clock_offset();
      if (std::abs(offset) > std::abs(result_.clock_offset)) {
        result_.clock_offset = offset;
      }
      const std::string log = jobs_[i]->EventLog();
      for (auto& point : experiment::WorkersOverTime(log, spec.name,
                                                     result_.began - offset)) {
        shared.timeline.push_back(std::move(point));
      }
      shared.waiting[spec.name] = jobs_[i]->view().first_step_at() + offset -
                                  result_.began - spec.arrives;
      shared.completion[spec.name] = ends_[i] - spec.arrives;
      shared.makespan = std::max(shared.makespan, ends_[i] - first);
      const auto ledger = jobs_[i]->Ledger(/*finished=*/true);
      result_.ledger_records += ledger.records;
      if (!ledger.exact) {
        result_.ledger = absl::StrCat(spec.name, ": ", ledger.problem);
      }
    }
    CheckRoom();
    AddService(first + shared.makespan);
    if (failure_.empty() && result_.ledger != "exact") {
      failure_ = absl::StrCat("a ledger is not exact: ", result_.ledger);
    }
    result_.wall_seconds = WallSeconds() - result_.began;
    if (on_cluster_) {
      result_.on_cluster = true;
      // Those of this machine do not matter.
      result_.cpu_seconds = -1;
      result_.load = -1;
      result_.cores = 0;
    }
    shared.utilisation = experiment::SlotUtilisation(
        shared.timeline, plan_.sharing.slots, first, first + shared.makespan);
    result_.ok = failure_.empty();
    result_.reason = failure_;
  }

  // Is the cluster as large as the plan says? Otherwise the policies are not
  // comparable.
  void CheckRoom() {
    if (!on_cluster_ || !failure_.empty()) return;
    const int64_t most =
        experiment::MostAtOnce(result_.shared.timeline, kOverlap);
    if (most > plan_.sharing.slots) {
      failure_ =
          absl::StrCat(most, " workers ran at the same time, but the plan has ",
                       plan_.sharing.slots,
                       " slots: set slots, or --worker_resource_request");
    }
    for (size_t i = 0; i < jobs_.size() && run_.policy == experiment::kGang;
         ++i) {
      if (jobs_[i] == nullptr || jobs_[i]->view().started()) continue;
      failure_ = absl::StrCat(
          "job ", plan_.sharing.jobs[i].name, " never had its ",
          jobs_[i]->options().workers,
          " workers: the cluster has no room for them (or they had no step)");
    }
  }

  void AddService(double end) {
    if (plan_.sharing.service.empty()) return;
    auto& timeline = result_.shared.timeline;
    for (const experiment::LoadPoint& point : plan_.sharing.service) {
      if (point.at < end)
        timeline.push_back({point.at, "service", point.slots});
    }
    timeline.push_back({end, "service", 0});
  }

  const Plan& plan_;
  const Run& run_;
  const RunFolders folders_;
  ExperimentSignals& signals_;
  const bool on_cluster_;
  const experiment::Divider divider_;
  RunResult result_;
  std::vector<SharedState> states_;
  std::vector<std::unique_ptr<LiveJob>> jobs_;
  // When they ended, after the start of the run.
  std::vector<double> ends_;
  bool cancelled_ = false;
  // When to kill what was asked to stop, after the start of the run.
  double kill_at_ = kNever;
  std::string failure_;
  // Why a job could not be changed; it may work later.
  std::string trouble_;
};

}  // namespace

absl::StatusOr<RunResult> RunShared(const Plan& plan, const Run& run,
                                    const RunFolders& folders,
                                    ExperimentSignals& signals) {
  return SharedRun(plan, run, folders, signals).Execute();
}

}  // namespace elasticdl::cli
