#include "elasticdl/elastic/watchdog.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::elastic {

Watchdog::Watchdog(absl::Duration limit, Report report)
    : limit_(limit), report_(std::move(report)) {
  if (limit_ > absl::ZeroDuration()) {
    thread_ = Thread("watchdog", [this] { Run(); });
  }
}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mu_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  thread_.Join();
}

Watchdog::Watch::Watch(Watchdog* watchdog, const char* where, int64_t step)
    : watchdog_(watchdog) {
  if (watchdog_ == nullptr) return;
  MutexLock lock(watchdog_->mu_);
  watchdog_->where_ = where;
  watchdog_->step_ = step;
  watchdog_->since_ = Clock::Real().Now();
  watchdog_->reported_ = false;
}

Watchdog::Watch::~Watch() {
  if (watchdog_ == nullptr) return;
  MutexLock lock(watchdog_->mu_);
  watchdog_->where_ = nullptr;
}

// Wakes up when the current watch would be overdue. A watch that begins
// meanwhile cannot be overdue before the next wake-up.
void Watchdog::Run() {
  mu_.Lock();
  while (!stopped_) {
    const absl::Time now = Clock::Real().Now();
    const absl::Duration age =
        where_ == nullptr || reported_ ? absl::ZeroDuration() : now - since_;
    if (age < limit_) {
      wake_.WaitFor(mu_, limit_ - age);
      continue;
    }
    reported_ = true;
    const std::string where = step_ < 0
                                  ? std::string(where_)
                                  : absl::StrCat(where_, " of step ", step_);
    mu_.Unlock();
    report_(where, age);
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace elasticdl::elastic
