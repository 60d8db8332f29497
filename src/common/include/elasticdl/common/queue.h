// A bounded queue between threads that can be closed.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl {

// Thread-safe. Close() wakes every waiter: Push then fails, Pop drains what is
// left and then returns nothing.
template <typename T>
class Queue {
 public:
  explicit Queue(size_t capacity) : capacity_(capacity) {}

  // Waits for room. False (and `value` is dropped) when the queue is closed.
  bool Push(T value) {
    {
      MutexLock lock(mu_);
      while (items_.size() >= capacity_ && !closed_) has_room_.Wait(mu_);
      if (closed_) return false;
      items_.push_back(std::move(value));
    }
    has_items_.NotifyOne();
    return true;
  }

  // Waits for an item. Nothing when the queue is closed and empty, or when
  // `timeout` has passed.
  std::optional<T> Pop(absl::Duration timeout = absl::InfiniteDuration()) {
    std::optional<T> value;
    {
      MutexLock lock(mu_);
      const auto until = std::chrono::steady_clock::now();
      while (items_.empty() && !closed_) {
        const absl::Duration used =
            absl::FromChrono(std::chrono::steady_clock::now() - until);
        if (used >= timeout) return std::nullopt;
        has_items_.WaitFor(mu_, timeout - used);
      }
      if (items_.empty()) return std::nullopt;
      value = std::move(items_.front());
      items_.pop_front();
    }
    has_room_.NotifyOne();
    return value;
  }

  void Close() {
    {
      MutexLock lock(mu_);
      closed_ = true;
    }
    has_items_.NotifyAll();
    has_room_.NotifyAll();
  }

  bool closed() const {
    MutexLock lock(mu_);
    return closed_;
  }
  size_t size() const {
    MutexLock lock(mu_);
    return items_.size();
  }

 private:
  const size_t capacity_;
  mutable Mutex mu_;
  CondVar has_items_;
  CondVar has_room_;
  std::deque<T> items_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace elasticdl
