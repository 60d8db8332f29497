#include "rate_meter.h"

namespace elasticdl::master {

void RateMeter::Add(absl::Time now, int64_t records) {
  samples_.emplace_back(now, records);
  sum_ += records;
}

double RateMeter::PerSecond(absl::Time now) {
  // The oldest sample only marks where the window begins. Steps that take
  // longer than the window have a rate, too: that of the last one.
  while (samples_.size() > 2 && samples_[1].first < now - window_) {
    sum_ -= samples_.front().second;
    samples_.pop_front();
  }
  if (samples_.size() < 2) return 0;
  const double seconds = absl::ToDoubleSeconds(now - samples_.front().first);
  return seconds > 0
             ? static_cast<double>(sum_ - samples_.front().second) / seconds
             : 0;
}

}  // namespace elasticdl::master
