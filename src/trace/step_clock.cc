#include "elasticdl/trace/step_clock.h"

#include <utility>

namespace elasticdl::trace {

void StepClock::Enter(Kind kind) {
  if (kind == kind_) return;
  const int64_t now = NowNanoseconds();
  AddUntil(now);
  // Loop overhead would be half of a timeline.
  if (recorder_ != nullptr && kind_ != Kind::kOther) {
    recorder_->Add({kind_, begin_, now, step_ + 1});
  }
  begin_ = now;
  kind_ = kind;
}

void StepClock::AddUntil(int64_t now) {
  nanoseconds_[static_cast<size_t>(kind_)] += now - counted_until_;
  if (IsStepKind(kind_)) step_nanoseconds_ += now - counted_until_;
  counted_until_ = now;
}

void StepClock::CountStep(int64_t step, int64_t records) {
  AddUntil(NowNanoseconds());
  step_ = step;
  ++times_.steps;
  times_.records += records;
  times_.step_durations.Add(static_cast<double>(step_nanoseconds_) * 1e-9);
  step_nanoseconds_ = 0;
}

void StepClock::BeginAfter(int64_t step) {
  AddUntil(NowNanoseconds());
  step_ = step;
  step_nanoseconds_ = 0;
}

StepTimes StepClock::Take() {
  AddUntil(NowNanoseconds());
  for (size_t i = 0; i < nanoseconds_.size(); ++i) {
    times_.seconds[i] = static_cast<double>(nanoseconds_[i]) * 1e-9;
    nanoseconds_[i] = 0;
  }
  return std::exchange(times_, StepTimes());
}

ScopedRequest::~ScopedRequest() {
  const int64_t end = NowNanoseconds();
  const bool pull = kind_ == Kind::kPull;
  (pull ? clock_.pulls() : clock_.pushes()).Add(end - begin_);
  if (clock_.recorder() != nullptr) {
    clock_.recorder()->Add({kind_, begin_, end, 0});
  }
}

}  // namespace elasticdl::trace
