// What a JobReporter tells about a job that goes on: numbers, not events.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "job_reporter.h"

namespace elasticdl::master {
namespace {

// In each e-fold of the job's time.
constexpr int64_t kProgressLines = 500;

}  // namespace

std::string JobReporter::Phase() const {
  switch (options_.job.job_type()) {
    case v1::EVALUATION_ONLY:
      return "evaluate";
    case v1::PREDICTION_ONLY:
      return "predict";
    default:
      return "train";
  }
}

void JobReporter::Activity(std::string text) {
  const std::string line = activity_.Set(std::move(text), Clock::Real().Now());
  if (!line.empty()) Say(line);
}

void JobReporter::OnEvaluating(int64_t step,
                               const std::vector<int64_t>& workers) {
  events_->Evaluating(step, workers);
}

void JobReporter::OnSaving(const std::vector<int64_t>& workers) {
  events_->Saving(workers);
}

void JobReporter::Silent(PodType type, int64_t id, absl::Duration silence) {
  const std::string what = absl::StrCat(
      "has not answered for ",
      absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(100))));
  events_->Silent(type, id, what);
  Say(absl::StrCat(type == PodType::kPs ? "server " : "worker ", id, " ",
                   what));
}

void JobReporter::Heard(PodType type, int64_t id) {
  events_->Heard(type, id);
  Say(absl::StrCat(type == PodType::kPs ? "server " : "worker ", id,
                   " answers again"));
}

void JobReporter::Stopping() { status_.state = "stopping"; }

void JobReporter::Publish(absl::Time now, const TaskProgress& tasks,
                          const std::optional<EvaluationProgress>& evaluation,
                          int ready_workers, const std::vector<PodInfo>& pods) {
  UpdateStatus(now, tasks, ready_workers, pods);
  board_.Set(status_);
  LogProgress(now, /*last=*/false);
  // Of a command it is only known whether it runs.
  if (options_.job_command.empty()) display_->Update(Shown(evaluation), now);
}

void JobReporter::Tick(absl::Time now, const TaskProgress& tasks,
                       const std::optional<EvaluationProgress>& evaluation,
                       int ready_workers, const std::vector<PodInfo>& pods) {
  if (now >= next_publish_) {
    next_publish_ = now + absl::Milliseconds(200);
    Publish(now, tasks, evaluation, ready_workers, pods);
  }
  display_->Tick(now);
}

// The longer the job runs, the further apart: a log of a week has some
// thousand of these lines.
void JobReporter::LogProgress(absl::Time now, bool last) {
  if (now < next_progress_ && !last) return;
  if (!options_.job_command.empty()) return;
  next_progress_ =
      now + std::max(absl::Seconds(1), (now - started_) / kProgressLines);
  events_->Progress(status_);
}

void JobReporter::UpdateStatus(absl::Time now, const TaskProgress& tasks,
                               int ready_workers,
                               const std::vector<PodInfo>& pods) {
  status_.job = options_.job.job_name();
  status_.step = tasks.step;
  SetLogPosition(status_.generation, status_.step);
  status_.epoch = tasks.epoch + 1;
  status_.num_epochs = tasks.num_epochs;
  status_.records_done = tasks.committed_records + tasks.predicted_records;
  status_.records_total = std::max<int64_t>(0, tasks.total_records);
  status_.records_per_s = rate_.PerSecond(now);
  tasks_per_s_ = rate_.TasksPerSecond(now);
  status_.workers = ready_workers;
  status_.target_workers = target_workers_;
  status_.step_time = telemetry_.Breakdown(now);
  status_.slowest = telemetry_.SlowestWorker(now);
  status_.totals = telemetry_.totals();
  status_.pods.clear();
  for (const PodInfo& pod : pods) {
    StatusPod shown = {pod.name, pod.id,    PodTypeName(pod.type),
                       pod.pid,  pod.state, pod.message};
    const PodUsage* usage = telemetry_.Find({pod.type == PodType::kPs, pod.id});
    if (usage != nullptr) shown.usage = *usage;
    status_.pods.push_back(std::move(shown));
  }
}

master::Progress JobReporter::Shown(
    const std::optional<EvaluationProgress>& evaluation) const {
  master::Progress shown;
  shown.phase = Phase();
  shown.activity = activity_.text();
  shown.activity_time = activity_.time(Clock::Real().Now());
  shown.num_epochs = std::max<int64_t>(0, status_.num_epochs);
  shown.epoch = shown.num_epochs == 0
                    ? status_.epoch
                    : std::min<int64_t>(status_.epoch, shown.num_epochs);
  shown.step = status_.step;
  shown.records_done = status_.records_done;
  shown.records_total = status_.records_total;
  shown.records_per_s = status_.records_per_s;
  shown.loss = status_.loss;
  shown.workers = status_.workers;
  shown.target_workers = status_.target_workers;
  shown.generation = status_.generation;
  if (evaluation.has_value()) {
    shown.phase = "evaluate";
    shown.records_per_s = tasks_per_s_;
    shown.records_done = evaluation->done_records;
    shown.records_total = evaluation->total_records;
  }
  return shown;
}

absl::Time JobReporter::next_tick() const {
  return std::min(next_publish_, display_->next_wake());
}

}  // namespace elasticdl::master
