#include "experiment/run_one.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/status.h"
#include "elasticdl/experiment/cluster_job.h"
#include "experiment/experiment.h"
#include "experiment/live_job.h"

namespace elasticdl::cli {
namespace {

using experiment::Delivered;
using experiment::Delivery;
using experiment::Plan;
using experiment::Run;
using experiment::RunResult;

// One job from start to end. Thread-compatible.
class SingleRun {
 public:
  SingleRun(const Plan& plan, const Run& run, std::string notes,
            ExperimentSignals& signals)
      : plan_(plan),
        run_(run),
        notes_(std::move(notes)),
        signals_(signals),
        result_(NewResult(run)),
        driver_(run.actions) {}

  absl::StatusOr<RunResult> Execute(const std::string& folder) {
    LiveJobOptions options;
    options.folder = folder;
    result_.on_cluster = experiment::OnCluster(run_.flags);
    options.name = result_.on_cluster
                       ? experiment::ClusterJobName(plan_.name, run_.id, "")
                       : absl::StrCat("exp-", run_.id);
    options.notes = notes_;
    options.peer = run_.peer;
    options.flags = run_.flags;
    // It is ended after plan.seconds, not by the end of its data.
    if (plan_.seconds > 0) options.flags.emplace("num_epochs", "0");
    options.workers = run_.workers;
    options.mtbf = run_.mtbf;
    ELASTICDL_ASSIGN_OR_RETURN(job_, LiveJob::Start(options));
    while (!job_->reaped()) Step();
    job_->ReadEvents();
    TellError(job_->CleanUp());
    if (cancelled_) return absl::CancelledError("interrupted");
    Judge();
    return std::move(result_);
  }

 private:
  void Step() {
    const double now = WallSeconds();
    job_->ReadEvents();
    if (!stopping_) DeliverDue(now);
    if (!stopping_ && now >= EndTime()) {
      end_ = now - job_->clock_offset();
      BeginStop(now);
    }
    if (!stopping_ && now >= result_.began + plan_.timeout) {
      failure_ = absl::StrCat("it took longer than ", plan_.timeout, " s");
      // It says why a pod does not start.
      if (result_.on_cluster && !job_->view().started()) {
        absl::StrAppend(&failure_, ": ", job_->LastOutput());
      }
      BeginStop(now);
    }
    if (stopping_ && now >= kill_at_) {
      job_->Stop();
      kill_at_ = kNever;
    }
    Wait(NextTime(now) - now);
  }

  void Wait(double seconds) {
    pollfd fds[] = {{signals_.fd(), POLLIN, 0},
                    {job_->end_fd(), POLLIN, 0},
                    {job_->events_fd(), POLLIN, 0}};
    const int timeout =
        seconds > 1e6
            ? -1
            : static_cast<int>(std::ceil(std::max(0.0, seconds) * 1000));
    if (poll(fds, 3, timeout) < 0) return;
    if (fds[0].revents != 0 && signals_.Take()) {
      cancelled_ = true;
      if (stopping_) job_->Stop();
      BeginStop(WallSeconds());
    }
    if (fds[1].revents != 0) job_->Reap();
  }

  void BeginStop(double now) {
    if (std::exchange(stopping_, true)) return;
    job_->Stop();
    kill_at_ = now + kStopSeconds;
  }

  void DeliverDue(double now) {
    for (const Delivery& one :
         driver_.Due(now - job_->clock_offset(), job_->view())) {
      const absl::StatusOr<double> at = job_->Deliver(one);
      if (!at.ok()) {
        // A peer that cannot do something goes on without it, and a job may
        // end at this moment.
        if (!absl::IsUnimplemented(at.status()) &&
            !absl::IsFailedPrecondition(at.status())) {
          failure_ = std::string(at.status().message());
        }
        continue;
      }
      delivered_.push_back(
          {*at - job_->clock_offset(), one.kind,
           std::max<int64_t>(1, static_cast<int64_t>(one.pods.size()))});
    }
  }

  double EndTime() const {
    if (plan_.seconds <= 0 || !job_->view().started()) return kNever;
    return job_->view().started_at() + plan_.seconds + job_->clock_offset();
  }

  double NextTime(double now) const {
    if (stopping_) return kill_at_;
    double next = std::min(EndTime(), result_.began + plan_.timeout);
    const double action = driver_.NextTime(job_->view()) + job_->clock_offset();
    // What is due and was not delivered waits for workers.
    if (action > now) next = std::min(next, action);
    return next;
  }

  void Judge() {
    experiment::MeasureOptions options;
    options.workers = run_.workers;
    options.target_metric = plan_.target_metric;
    options.target_value = plan_.target_value;
    options.end = end_;
    options.delivered = delivered_;
    result_.measured = experiment::Measure(job_->EventLog(), options);
    result_.wall_seconds = WallSeconds() - result_.began;
    result_.cpu_seconds = job_->cpu_seconds();
    if (result_.on_cluster) {
      result_.clock_offset = job_->clock_offset();
      // Those of this machine do not matter.
      result_.load = -1;
      result_.cores = 0;
    }
    const bool peer = run_.peer != experiment::kElasticdl;
    if (!peer) {
      const experiment::LedgerCheck ledger =
          job_->Ledger(result_.measured.state == "succeeded");
      result_.ledger = ledger.exact ? "exact" : ledger.problem;
      result_.ledger_records = ledger.records;
    }
    if (failure_.empty() && end_ == 0 && job_->exit_code() != 0) {
      failure_ = absl::StrCat("exit code ", job_->exit_code(), ": ",
                              job_->LastOutput());
    } else if (failure_.empty() && !job_->view().started()) {
      failure_ = "it never had all its workers";
    } else if (failure_.empty() && !peer && result_.ledger != "exact") {
      failure_ = absl::StrCat("the ledger is not exact: ", result_.ledger);
    }
    result_.ok = failure_.empty();
    result_.reason = failure_;
  }

  const Plan& plan_;
  const Run& run_;
  const std::string notes_;
  ExperimentSignals& signals_;
  RunResult result_;
  experiment::TraceDriver driver_;
  std::unique_ptr<LiveJob> job_;
  std::vector<Delivered> delivered_;
  bool cancelled_ = false;
  bool stopping_ = false;
  double kill_at_ = kNever;
  // When the measurement ended; 0: with the job.
  double end_ = 0;
  std::string failure_;
};

}  // namespace

void TellError(const absl::Status& status) {
  if (!status.ok()) ExperimentFailed(status, 0);
}

RunResult NewResult(const Run& run) {
  RunResult result;
  result.id = run.id;
  result.repeat = run.repeat;
  result.settings = run.settings;
  result.peer = run.peer;
  result.policy = run.policy;
  result.workers = run.workers;
  result.calm = run.calm;
  result.mtbf = run.mtbf;
  result.began = WallSeconds();
  result.cores = std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
  double load[1] = {0};
  if (getloadavg(load, 1) == 1) result.load = load[0];
  return result;
}

absl::StatusOr<RunResult> RunOne(const Plan& plan, const Run& run,
                                 const RunFolders& folders,
                                 ExperimentSignals& signals) {
  return SingleRun(plan, run, folders.notes, signals).Execute(folders.run);
}

}  // namespace elasticdl::cli
