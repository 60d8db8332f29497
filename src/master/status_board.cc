#include "status_board.h"

#include <utility>

namespace elasticdl::master {

void StatusBoard::Set(JobStatus status, absl::Time now) {
  MutexLock lock(mu_);
  status_ = std::move(status);
  AddPoint(now);
}

JobStatus StatusBoard::Get() const {
  MutexLock lock(mu_);
  return status_;
}

std::vector<StatusPoint> StatusBoard::History() const {
  MutexLock lock(mu_);
  return points_;
}

void StatusBoard::AddPoint(absl::Time now) {
  if (first_ == absl::InfiniteFuture()) first_ = now;
  const double seconds = absl::ToDoubleSeconds(now - first_);
  if (!points_.empty() && seconds < points_.back().seconds + spacing_) return;
  if (points_.size() >= kMaxPoints) {
    for (size_t i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
    points_.resize((points_.size() + 1) / 2);
    spacing_ *= 2;
  }
  points_.push_back(
      {seconds, status_.step, status_.loss, status_.records_per_s});
}

}  // namespace elasticdl::master
