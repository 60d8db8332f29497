#include "local/relaunch.h"

namespace elasticdl::cli {

std::optional<absl::Duration> RelaunchRule::OnKilled(absl::Time now) {
  while (!times_.empty() && times_.front() <= now - options_.window) {
    times_.pop_front();
  }
  if (times_.size() >= options_.most || restarts_ >= options_.most_in_all) {
    return std::nullopt;
  }
  absl::Duration delay = times_.empty() ? absl::ZeroDuration() : options_.delay;
  for (size_t i = 1; i < times_.size(); ++i) delay *= 2;
  times_.push_back(now);
  ++restarts_;
  return delay;
}

}  // namespace elasticdl::cli
