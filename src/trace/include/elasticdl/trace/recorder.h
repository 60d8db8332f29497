// The spans of one worker for --timeline, until they are sent to the master.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "elasticdl/common/mutex.h"
#include "elasticdl/trace/kind.h"

namespace elasticdl::trace {

// Of the machine's monotonic clock.
int64_t NowNanoseconds();

struct Span {
  Kind kind = Kind::kIdle;
  int64_t begin = 0;
  int64_t end = 0;
  // The step; of an all-reduce the bucket; of a world its generation.
  int64_t number = 0;
};

// Thread-safe. Its memory is bounded: spans that do not fit before the next
// Take are dropped and counted.
class Recorder {
 public:
  // About 4 s of steps of 1 ms: 1 MB.
  static constexpr size_t kMaxSpans = 32768;

  explicit Recorder(size_t max_spans = kMaxSpans);

  void Add(const Span& span);

  struct Taken {
    std::vector<Span> spans;
    // Since the last call.
    int64_t dropped = 0;
  };
  Taken Take();

 private:
  const size_t max_spans_;
  Mutex mu_;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
};

// Records its own lifetime as a span. With a null recorder it does nothing and
// does not read the clock.
class ScopedSpan {
 public:
  ScopedSpan(Recorder* recorder, Kind kind, int64_t number)
      : recorder_(recorder),
        kind_(kind),
        number_(number),
        begin_(recorder == nullptr ? 0 : NowNanoseconds()) {}
  ~ScopedSpan() {
    if (recorder_ != nullptr) {
      recorder_->Add({kind_, begin_, NowNanoseconds(), number_});
    }
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  Recorder* const recorder_;
  const Kind kind_;
  const int64_t number_;
  const int64_t begin_;
};

}  // namespace elasticdl::trace
