#include "byte_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"

namespace elasticdl::ps {

absl::StatusOr<ByteBudget::Share> ByteBudget::Take(uint64_t bytes,
                                                   absl::Duration timeout) {
  if (bytes == 0) return Share();
  const Clock& clock = Clock::Real();
  const uint64_t counted = std::min(bytes, bytes_);
  MutexLock lock(mu_);
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return counted <= bytes_ - used_;
  };
  if (stopped_ || !waiters_.empty() || !fits()) {
    const absl::Time end = clock.Now() + timeout;
    Waiter waiter;
    waiters_.push_back(&waiter);
    absl::Duration left = timeout;
    while (!stopped_ && (waiters_.front() != &waiter || !fits()) &&
           left > absl::ZeroDuration()) {
      waiter.first.WaitFor(mu_, left);
      left = end - clock.Now();
    }
    const bool mine = !stopped_ && waiters_.front() == &waiter && fits();
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
    // There may be room for the next one, too.
    if (!mine) {
      WakeFirst();
      return absl::UnavailableError(absl::StrCat(
          "no room for a request of ", bytes, " bytes beside the others"));
    }
  }
  used_ += counted;
  WakeFirst();
  return Share(this, counted);
}

void ByteBudget::GiveBack(uint64_t bytes) {
  MutexLock lock(mu_);
  used_ -= bytes;
  WakeFirst();
}

void ByteBudget::Stop() {
  MutexLock lock(mu_);
  stopped_ = true;
  for (Waiter* waiter : waiters_) waiter->first.NotifyOne();
}

}  // namespace elasticdl::ps
