// Histograms of durations with fixed buckets, for Prometheus.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace elasticdl::trace {

// Upper bounds in seconds; one more bucket has the rest. From a fast step of a
// small model to one that has waited for a new world.
inline constexpr std::array<double, 16> kDurationBounds = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05,   0.1,     0.25,   0.5,   1,      2.5,   10,   60};

// Thread-compatible.
struct DurationCounts {
  // Of each bucket alone.
  std::array<int64_t, kDurationBounds.size() + 1> counts = {};
  double seconds = 0;

  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t count : counts) sum += count;
    return sum;
  }
  void Add(double duration) {
    size_t bucket = 0;
    while (bucket < kDurationBounds.size() &&
           duration > kDurationBounds[bucket]) {
      ++bucket;
    }
    ++counts[bucket];
    seconds += duration;
  }
};

// Thread-safe and lock-free: a few counters.
class DurationHistogram {
 public:
  void Add(int64_t nanoseconds) {
    const double duration = static_cast<double>(nanoseconds) * 1e-9;
    size_t bucket = 0;
    while (bucket < kDurationBounds.size() &&
           duration > kDurationBounds[bucket]) {
      ++bucket;
    }
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  // What was added since the last call.
  DurationCounts Take() {
    DurationCounts taken;
    for (size_t i = 0; i < counts_.size(); ++i) {
      taken.counts[i] = counts_[i].exchange(0, std::memory_order_relaxed);
    }
    taken.seconds = 1e-9 * static_cast<double>(nanoseconds_.exchange(
                               0, std::memory_order_relaxed));
    return taken;
  }

 private:
  std::array<std::atomic<int64_t>, kDurationBounds.size() + 1> counts_ = {};
  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace elasticdl::trace
