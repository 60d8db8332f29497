// How many bytes of requests and answers a server holds at once.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl::ps {

// Thread-safe. First come, first served, so that a large request gets its turn.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t bytes) : bytes_(bytes) {}

  // Gives its bytes back when it goes.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept { *this = std::move(other); }
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->GiveBack(bytes_);
    }

   private:
    friend class ByteBudget;
    Share(ByteBudget* budget, uint64_t bytes)
        : budget_(budget), bytes_(bytes) {}
    ByteBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };
  // Waits until there is room. What is larger than everything is let in alone.
  // UNAVAILABLE: not in time, or after Stop.
  absl::StatusOr<Share> Take(uint64_t bytes, absl::Duration timeout);
  // Nobody waits any more.
  void Stop();

 private:
  struct Waiter {
    CondVar first;
  };
  void GiveBack(uint64_t bytes);
  void WakeFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!waiters_.empty()) waiters_.front()->first.NotifyOne();
  }

  const uint64_t bytes_;
  Mutex mu_;
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::ps
