#include "elasticdl/experiment/measure.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "elasticdl/experiment/job_view.h"
#include "elasticdl/ledger_audit.h"
#include "event_line.h"

namespace elasticdl::experiment {
namespace {

// Jobs report their progress every second.
constexpr double kSilence = 2;

struct World {
  double time = 0;
  int64_t members = 0;
};

// Reads an event log from its first line to its last. Thread-compatible.
class Meter {
 public:
  explicit Meter(const MeasureOptions& options)
      : options_(options), view_(options.workers) {}

  void OnLine(absl::string_view line) {
    const EventLine event(line);
    const double time = event.Number("time");
    // How the job ends is known only after the end of the measurement.
    if (event.Is("job_end")) result_.state = event.Text("state");
    if (event.Is("job_start") && job_start_ == 0) job_start_ = time;
    if (time > 0) last_time_ = std::max(last_time_, time);
    if (!event.valid() || (options_.end > 0 && time > options_.end)) return;
    view_.OnLine(line);
    if (event.Is("world")) OnWorld(event, time);
    if (event.Is("progress")) OnProgress(event, time);
    if (event.Is("checkpoint") && event.Has("ms")) {
      result_.save_ms.push_back(event.Number("ms"));
    }
    if (event.Is("evaluation")) OnEvaluation(event, time);
    if (event.Is("first_step")) OnFirstStep(event, time);
  }

  Measured Finish() {
    if (job_start_ > 0 && view_.started()) {
      result_.startup = view_.started_at() - job_start_;
    }
    if (job_start_ > 0) result_.elapsed = last_time_ - job_start_;
    result_.steps = view_.step();
    // A job that was down when the measurement ended has no progress to report.
    if (options_.end > last_progress_ + kSilence) last_progress_ = options_.end;
    if (first_progress_ > 0 && last_progress_ > first_progress_) {
      result_.seconds = last_progress_ - first_progress_;
      result_.records = last_records_ - first_records_;
      result_.records_per_second =
          static_cast<double>(result_.records) / result_.seconds;
      result_.mean_workers = MeanWorkers();
    }
    for (const Delivered& one : options_.delivered) {
      if (IsKill(one)) result_.kills += one.count;
    }
    return std::move(result_);
  }

 private:
  static bool IsKill(const Delivered& one) {
    return one.kind == ActionKind::kKill;
  }

  void OnWorld(const EventLine& event, double time) {
    const auto generation = static_cast<int64_t>(event.Number("generation"));
    worlds_.push_back(
        {time, static_cast<int64_t>(event.Integers("members").size())});
    world_at_[generation] = time;
    const std::string cause = event.Text("cause");
    // Nobody waited for the first world but the start.
    if (worlds_.size() == 1 || !event.Has("pause_ms")) return;
    auto& pauses = absl::StrContains(cause, "lost") ? result_.loss_pause_ms
                                                    : result_.join_pause_ms;
    pauses.push_back(event.Number("pause_ms"));
  }

  // The first step of a world that was formed after a kill ends its recovery.
  void OnFirstStep(const EventLine& event, double time) {
    const auto generation = static_cast<int64_t>(event.Number("generation"));
    const auto world = world_at_.find(generation);
    const double formed = world == world_at_.end() ? time : world->second;
    while (next_kill_ < options_.delivered.size()) {
      const Delivered& one = options_.delivered[next_kill_];
      if (IsKill(one) && one.time > formed) return;
      if (IsKill(one)) result_.recovery_ms.push_back((time - one.time) * 1000);
      ++next_kill_;
    }
  }

  void OnProgress(const EventLine& event, double time) {
    if (!view_.started()) return;
    const auto records = static_cast<int64_t>(event.Number("records_done"));
    if (first_progress_ == 0) {
      first_progress_ = time;
      first_records_ = records;
    }
    last_progress_ = time;
    last_records_ = records;
  }

  void OnEvaluation(const EventLine& event, double time) {
    if (options_.target_metric.empty() || !event.Has("metrics")) return;
    const nlohmann::json& metrics = event.json().at("metrics");
    if (!metrics.is_object() || !metrics.contains(options_.target_metric)) {
      return;
    }
    const nlohmann::json& value = metrics.at(options_.target_metric);
    if (!value.is_number()) return;
    result_.last_metric = value.get<double>();
    if (result_.last_metric >= options_.target_value &&
        result_.time_to_target < 0 && view_.first_step_at() > 0) {
      result_.time_to_target = time - view_.first_step_at();
    }
  }

  double MeanWorkers() const {
    double sum = 0;
    for (size_t i = 0; i < worlds_.size(); ++i) {
      const double from = std::max(worlds_[i].time, first_progress_);
      const double to = std::min(
          i + 1 < worlds_.size() ? worlds_[i + 1].time : last_progress_,
          last_progress_);
      if (to > from)
        sum += (to - from) * static_cast<double>(worlds_[i].members);
    }
    return sum / (last_progress_ - first_progress_);
  }

  const MeasureOptions& options_;
  JobView view_;
  Measured result_;
  double job_start_ = 0;
  double last_time_ = 0;
  double first_progress_ = 0;
  double last_progress_ = 0;
  int64_t first_records_ = 0;
  int64_t last_records_ = 0;
  std::vector<World> worlds_;
  std::map<int64_t, double> world_at_;
  size_t next_kill_ = 0;
};

}  // namespace

Measured Measure(absl::string_view event_log, const MeasureOptions& options) {
  Meter meter(options);
  for (const absl::string_view line : absl::StrSplit(event_log, '\n')) {
    if (!line.empty()) meter.OnLine(line);
  }
  return meter.Finish();
}

LedgerCheck CheckLedger(const std::string& audit, bool finished) {
  LedgerCheck result;
  LedgerAudit ledger;
  std::istringstream in(audit);
  if (const absl::Status read = ledger.Read(in); !read.ok()) {
    result.problem = absl::StrCat("the audit is damaged, ", read.message());
    return result;
  }
  const AuditResult checked = ledger.Check();
  result.records = checked.records;
  if (checked.twice > 0) {
    result.problem = absl::StrCat(
        checked.twice, " records are there twice: ", checked.places.front());
    return result;
  }
  int64_t most = 0;
  for (const auto& [number, epoch] : checked.epochs) {
    most = std::max(most, epoch.records);
  }
  for (const auto& [number, epoch] : checked.epochs) {
    if (epoch.records == most) ++result.complete_epochs;
    // A job that was ended is in the middle of an epoch.
    if (finished && epoch.records != most) {
      result.problem =
          absl::StrCat("epoch ", number + 1, " has ", epoch.records,
                       " records, another one ", most);
      return result;
    }
  }
  result.exact = true;
  return result;
}

std::vector<TimelinePoint> WorkersOverTime(absl::string_view event_log,
                                           const std::string& job,
                                           double start) {
  std::vector<TimelinePoint> points;
  for (const absl::string_view text : absl::StrSplit(event_log, '\n')) {
    const EventLine event(text);
    const double at = event.Number("time") - start;
    if (event.Is("world")) {
      points.push_back(
          {at, job, static_cast<int64_t>(event.Integers("members").size())});
    } else if (event.Is("job_end")) {
      points.push_back({at, job, 0});
    }
  }
  return points;
}

}  // namespace elasticdl::experiment
