// Cancels a blocked call from another thread.
#pragma once

#include <atomic>

namespace elasticdl {

// Thread-safe. Cancelled once and for good.
class Cancellation {
 public:
  Cancellation();
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel();
  bool cancelled() const { return cancelled_.load(); }
  // Readable once cancelled: for poll().
  int fd() const { return fd_; }

 private:
  std::atomic<bool> cancelled_{false};
  const int fd_;
};

}  // namespace elasticdl
