#include "telemetry.h"

#include <utility>

#include "elasticdl/common/clock.h"

namespace elasticdl::worker {
namespace {

// Often enough for a display, seldom enough to cost nothing.
constexpr absl::Duration kTelemetryInterval = absl::Seconds(1);
constexpr absl::Duration kSecondTelemetry = absl::Milliseconds(100);

void FillCounts(const trace::DurationCounts& counts, v1::DurationCounts& out) {
  if (counts.total() == 0) return;
  out.mutable_counts()->Assign(counts.counts.begin(), counts.counts.end());
  out.set_seconds(counts.seconds);
}

}  // namespace

Telemetry::Telemetry(bool timeline, SendFunction send)
    : send_(std::move(send)),
      recorder_(timeline ? std::make_unique<trace::Recorder>() : nullptr) {}

void Telemetry::SetClock(trace::StepClock* clock) {
  clock_ = clock;
  clock_->SetRecorder(recorder_.get());
}

void Telemetry::OnEcho(const v1::TraceEcho& echo) {
  const int64_t now = trace::NowNanoseconds();
  MutexLock lock(mu_);
  offset_.Add(echo.sent(), echo.received(), now);
}

void Telemetry::Flush(absl::Time now) {
  {
    MutexLock lock(mu_);
    offset_.Assume(trace::NowNanoseconds(),
                   absl::ToUnixNanos(Clock::Real().WallNow()));
  }
  Send(now);
}

void Telemetry::Send(absl::Time now) {
  if (clock_ == nullptr) return;
  // The second soon after the first, which is answered with the clock.
  const bool first = last_ == absl::InfinitePast();
  next_ = now + (first ? kSecondTelemetry : kTelemetryInterval);
  const trace::ProcessUsage usage = trace::ReadProcessUsage();
  v1::WorkerMessage message;
  v1::Telemetry& telemetry = *message.mutable_telemetry();
  telemetry.set_memory_bytes(usage.memory_bytes);
  if (!first) {
    telemetry.set_seconds(absl::ToDoubleSeconds(now - last_));
    telemetry.set_cpu_seconds(usage.cpu_seconds - last_usage_.cpu_seconds);
  }
  last_ = now;
  last_usage_ = usage;
  const trace::StepTimes times = clock_->Take();
  telemetry.mutable_phase_seconds()->Assign(times.seconds.begin(),
                                            times.seconds.end());
  telemetry.set_steps(times.steps);
  telemetry.set_records(times.records);
  FillCounts(times.step_durations, *telemetry.mutable_step_durations());
  FillCounts(clock_->pulls().Take(), *telemetry.mutable_pull_durations());
  FillCounts(clock_->pushes().Take(), *telemetry.mutable_push_durations());
  if (recorder_ != nullptr) AddSpans(*telemetry.mutable_spans());
  send_(std::move(message));
}

void Telemetry::AddSpans(v1::TraceSpans& spans) {
  bool known = false;
  {
    MutexLock lock(mu_);
    known = offset_.known();
  }
  // Before the first echo it is not known when they were: they wait.
  const trace::Recorder::Taken taken =
      known ? recorder_->Take() : trace::Recorder::Taken();
  const int size = static_cast<int>(taken.spans.size());
  spans.mutable_kinds()->Reserve(size);
  spans.mutable_begins()->Reserve(size);
  spans.mutable_durations()->Reserve(size);
  spans.mutable_numbers()->Reserve(size);
  int64_t before = 0;
  for (const trace::Span& span : taken.spans) {
    spans.add_kinds(static_cast<int32_t>(span.kind));
    spans.add_begins(span.begin - before);
    spans.add_durations(span.end - span.begin);
    spans.add_numbers(span.number);
    before = span.begin;
  }
  spans.set_dropped(taken.dropped);
  MutexLock lock(mu_);
  spans.set_sent(trace::NowNanoseconds());
  spans.set_clock_offset(offset_.offset());
  spans.set_clock_error(offset_.ErrorAt(spans.sent()));
}

}  // namespace elasticdl::worker
