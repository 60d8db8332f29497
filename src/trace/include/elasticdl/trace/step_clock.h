// Measures how a worker's training thread spends its time.
#pragma once

#include <array>
#include <cstdint>

#include "elasticdl/trace/histogram.h"
#include "elasticdl/trace/kind.h"
#include "elasticdl/trace/recorder.h"

namespace elasticdl::trace {

// Sums since the last Take.
struct StepTimes {
  // By Kind.
  std::array<double, kTrainingKinds> seconds = {};
  int64_t steps = 0;
  int64_t records = 0;
  DurationCounts step_durations;
};

// Runs on the training thread, except where said. Entering a kind of work reads
// the clock once and allocates nothing.
class StepClock {
 public:
  // From now on the thread does this.
  void Enter(Kind kind);
  Kind kind() const { return kind_; }

  // One step with so many records of this worker is done; its number.
  void CountStep(int64_t step, int64_t records);
  // It begins to train after this step: what it did before is of no step.
  void BeginAfter(int64_t step);
  StepTimes Take();

  // For a timeline; null = none. Must outlive the clock.
  void SetRecorder(Recorder* recorder) { recorder_ = recorder; }
  // Any thread, once set.
  Recorder* recorder() const { return recorder_; }

  // Requests to parameter servers. Any thread.
  DurationHistogram& pulls() { return pulls_; }
  DurationHistogram& pushes() { return pushes_; }

 private:
  void AddUntil(int64_t now);

  Recorder* recorder_ = nullptr;
  // What it does now, and since when.
  Kind kind_ = Kind::kIdle;
  int64_t begin_ = NowNanoseconds();
  int64_t counted_until_ = begin_;
  // Of the step at hand.
  int64_t step_nanoseconds_ = 0;
  int64_t step_ = 0;
  std::array<int64_t, kTrainingKinds> nanoseconds_ = {};
  StepTimes times_;
  DurationHistogram pulls_;
  DurationHistogram pushes_;
};

// Does something else in between.
class ScopedKind {
 public:
  ScopedKind(StepClock& clock, Kind kind) : clock_(clock), back_(clock.kind()) {
    clock_.Enter(kind);
  }
  ~ScopedKind() { clock_.Enter(back_); }
  ScopedKind(const ScopedKind&) = delete;
  ScopedKind& operator=(const ScopedKind&) = delete;

 private:
  StepClock& clock_;
  const Kind back_;
};

// Times one request to parameter servers.
class ScopedRequest {
 public:
  // `kind`: kPull or kPush. May be on any thread.
  ScopedRequest(StepClock& clock, Kind kind)
      : clock_(clock), kind_(kind), begin_(NowNanoseconds()) {}
  ~ScopedRequest();
  ScopedRequest(const ScopedRequest&) = delete;
  ScopedRequest& operator=(const ScopedRequest&) = delete;

 private:
  StepClock& clock_;
  const Kind kind_;
  const int64_t begin_;
};

}  // namespace elasticdl::trace
