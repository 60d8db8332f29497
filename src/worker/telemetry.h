// A worker's reports about itself to the master, once a second: step times,
// memory, CPU, and the spans of a timeline.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/trace/clock_offset.h"
#include "elasticdl/trace/process_usage.h"
#include "elasticdl/trace/recorder.h"
#include "elasticdl/trace/step_clock.h"
#include "elasticdl/v1/master.pb.h"
#include "event.h"

namespace elasticdl::worker {

// Runs on the training thread, except OnEcho.
class Telemetry {
 public:
  // With `timeline`, spans are recorded and sent.
  Telemetry(bool timeline, SendFunction send);

  // The clock of the training thread, once; must outlive this.
  void SetClock(trace::StepClock* clock);
  // Null without a timeline. Any thread may record.
  trace::Recorder* recorder() { return recorder_.get(); }

  // Sends if it is time.
  void Tick(absl::Time now) {
    if (now >= next_) Send(now);
  }
  // What is left, before the process ends.
  void Flush(absl::Time now);

  // The answer of the master to the spans; any thread.
  void OnEcho(const v1::TraceEcho& echo);

 private:
  void Send(absl::Time now);
  void AddSpans(v1::TraceSpans& spans);

  const SendFunction send_;
  // Null: no timeline.
  const std::unique_ptr<trace::Recorder> recorder_;
  trace::StepClock* clock_ = nullptr;
  absl::Time next_ = absl::InfinitePast();
  absl::Time last_ = absl::InfinitePast();
  trace::ProcessUsage last_usage_;

  Mutex mu_;
  trace::ClockOffset offset_ ABSL_GUARDED_BY(mu_);
};

}  // namespace elasticdl::worker
