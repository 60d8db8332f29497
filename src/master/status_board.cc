#include "status_board.h"

#include <algorithm>
#include <utility>

#include "elasticdl/common/clock.h"
#include "elasticdl/common/log.h"
#include "http_status.h"

namespace elasticdl::master {

void StatusBoard::Set(JobStatus status) {
  const absl::Time now = Clock::Real().Now();
  MutexLock lock(mu_);
  status_ = std::move(status);
  set_at_ = now;
}

std::optional<absl::Duration> StatusBoard::Age(absl::Time now) const {
  MutexLock lock(mu_);
  if (!set_at_.has_value()) return std::nullopt;
  return now - *set_at_;
}

JobStatus StatusBoard::Get() const {
  MutexLock lock(mu_);
  return status_;
}

void StatusBoard::AddEvent(const std::string& line) {
  absl::Status added;
  {
    MutexLock lock(mu_);
    added = history_.Add(line);
  }
  changed_.NotifyAll();
  if (!added.ok()) LogWarning("event log: ", added.message());
}

StatusBoard::Answer StatusBoard::Update(uint64_t since, absl::Time now) const {
  page::Changes changes;
  JobStatus status;
  {
    // Copied here, written as text without the lock: the job's thread must not
    // wait for that.
    MutexLock lock(mu_);
    changes = history_.Since(since);
    status = status_;
  }
  const bool ended = changes.summary.end.has_value();
  if (!ended) {
    changes.now =
        std::max(changes.now,
                 absl::ToDoubleSeconds(now - absl::UnixEpoch()) + changes.skew);
  }
  // The history has the evaluations.
  return {page::ChangesToJson(changes, StatusToJson(status, false)),
          changes.cursor, ended};
}

std::vector<StatusPoint> StatusBoard::Points() const {
  page::Changes changes;
  {
    MutexLock lock(mu_);
    changes = history_.Since(0);
  }
  std::vector<StatusPoint> points;
  for (const page::Point& point : changes.points) {
    points.push_back({point.time - changes.points[0].time, point.step,
                      point.loss, point.records_per_s});
  }
  return points;
}

std::string StatusBoard::Model() const {
  MutexLock lock(mu_);
  return history_.model();
}

bool StatusBoard::WaitNews(uint64_t cursor, absl::Duration spacing,
                           absl::Duration period) const {
  const absl::Time begin = Clock::Real().Now();
  MutexLock lock(mu_);
  while (!closed_) {
    // The end is told at once: the server goes when it has been seen.
    const bool changed = history_.cursor() > cursor;
    if (changed && history_.summary().end.has_value()) break;
    const absl::Duration left =
        begin + (changed ? spacing : period) - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mu_, left);
  }
  return !closed_ || history_.cursor() > cursor;
}

uint64_t StatusBoard::cursor() const {
  MutexLock lock(mu_);
  return history_.cursor();
}

bool StatusBoard::closed() const {
  MutexLock lock(mu_);
  return closed_;
}

void StatusBoard::Close() {
  {
    MutexLock lock(mu_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace elasticdl::master
