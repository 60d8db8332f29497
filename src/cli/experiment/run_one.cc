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
#include "experiment/live_job.h"

namespace elasticdl::cli {
namespace {

using experiment::Delivered;
using experiment::Delivery;
using experiment::Plan;
using experiment::Run;
using experiment::RunResult;

// Ending in an orderly way takes a second or two; then it is killed.
constexpr double kStopSeconds = 60;

// One job from start to end. Thread-compatible.
class SingleRun {
 public:
  SingleRun(const Plan& plan, const Run& run, ExperimentSignals& signals)
      : plan_(plan),
        run_(run),
        signals_(signals),
        result_(NewResult(run)),
        driver_(run.actions) {}

  absl::StatusOr<RunResult> Execute(const std::string& folder) {
    LiveJobOptions options;
    options.folder = folder;
    options.name = absl::StrCat("exp-", run_.id);
    options.peer = run_.peer;
    options.flags = run_.flags;
    // It is ended after plan.seconds, not by the end of its data.
    if (plan_.seconds > 0) options.flags.emplace("num_epochs", "0");
    options.workers = run_.workers;
    options.mtbf = run_.mtbf;
    ELASTICDL_ASSIGN_OR_RETURN(job_, LiveJob::Start(options));
    while (!job_->reaped()) Step();
    job_->ReadEvents();
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
      end_ = now;
      BeginStop(now);
    }
    if (!stopping_ && now >= result_.began + plan_.timeout) {
      failure_ = absl::StrCat("it took longer than ", plan_.timeout, " s");
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
    for (const Delivery& one : driver_.Due(now, job_->view())) {
      const absl::Status status = job_->Deliver(one);
      if (!status.ok()) {
        // A peer that cannot do something goes on without it, and a job may
        // end at this moment.
        if (!absl::IsUnimplemented(status) &&
            !absl::IsFailedPrecondition(status)) {
          failure_ = std::string(status.message());
        }
        continue;
      }
      // When the signal was sent, not when the loop woke up.
      delivered_.push_back(
          {WallSeconds(), one.kind,
           std::max<int64_t>(1, static_cast<int64_t>(one.pids.size()))});
    }
  }

  double EndTime() const {
    if (plan_.seconds <= 0 || !job_->view().started()) return kNever;
    return job_->view().started_at() + plan_.seconds;
  }

  double NextTime(double now) const {
    if (stopping_) return kill_at_;
    double next = std::min(EndTime(), result_.began + plan_.timeout);
    const double action = driver_.NextTime(job_->view());
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
    const bool peer = run_.peer != experiment::kElasticdl;
    if (!peer) {
      const experiment::LedgerCheck ledger = experiment::CheckLedger(
          job_->Audit(), result_.measured.state == "succeeded");
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
                                 const std::string& folder,
                                 ExperimentSignals& signals) {
  return SingleRun(plan, run, signals).Execute(folder);
}

}  // namespace elasticdl::cli
