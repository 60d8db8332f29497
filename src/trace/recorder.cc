#include "elasticdl/trace/recorder.h"

#include <chrono>
#include <utility>

namespace elasticdl::trace {

int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Recorder::Recorder(size_t max_spans) : max_spans_(max_spans) {
  spans_.reserve(max_spans_);
}

void Recorder::Add(const Span& span) {
  MutexLock lock(mu_);
  if (spans_.size() < max_spans_) {
    spans_.push_back(span);
  } else {
    ++dropped_;
  }
}

Recorder::Taken Recorder::Take() {
  std::vector<Span> empty;
  // Not under the lock: steps record meanwhile.
  empty.reserve(max_spans_);
  MutexLock lock(mu_);
  Taken taken;
  taken.spans = std::exchange(spans_, std::move(empty));
  taken.dropped = std::exchange(dropped_, 0);
  return taken;
}

}  // namespace elasticdl::trace
