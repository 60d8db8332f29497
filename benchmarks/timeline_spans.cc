// What one span of --timeline costs, in nanoseconds of CPU time: on the
// training thread, on the worker's thread that sends spans, and at the master.
// Whole jobs (timeline.py) vary by more than the one percent that is allowed.
//   timeline_spans [rounds] [microseconds per step] [spans per step]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "elasticdl/trace/recorder.h"
#include "elasticdl/trace/step_clock.h"
#include "elasticdl/trace/timeline_file.h"
#include "elasticdl/v1/master.pb.h"

namespace elasticdl::trace {
namespace {

// What a worker sends at once, about a second of short steps.
constexpr int kSpans = 10000;

double CpuNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 +
         static_cast<double>(now.tv_nsec);
}

// The least of some rounds: other programs can only add to it.
double PerSpan(int rounds, const std::function<void()>& work) {
  double least = 1e18;
  for (int i = 0; i < rounds; ++i) {
    const double begin = CpuNanoseconds();
    work();
    least = std::min(least, CpuNanoseconds() - begin);
  }
  return least / kSpans;
}

void EnterKinds(StepClock& clock) {
  for (int i = 0; i < kSpans; i += 2) {
    clock.Enter(Kind::kForward);
    clock.Enter(Kind::kBackward);
  }
}

std::string Encode(const std::vector<Span>& spans) {
  v1::TraceSpans message;
  int64_t before = 0;
  for (const Span& span : spans) {
    message.add_kinds(static_cast<int32_t>(span.kind));
    message.add_begins(span.begin - before);
    message.add_durations(span.end - span.begin);
    message.add_numbers(span.number);
    before = span.begin;
  }
  return message.SerializeAsString();
}

bool Run(int rounds, double step_us, double spans_per_step) {
  StepClock plain;
  const double without = PerSpan(rounds, [&] { EnterKinds(plain); });

  Recorder recorder;
  StepClock clock;
  clock.SetRecorder(&recorder);
  std::vector<Span> spans;
  const double with = PerSpan(rounds, [&] {
    EnterKinds(clock);
    spans = recorder.Take().spans;
  });

  std::string bytes;
  const double sent = PerSpan(rounds, [&] { bytes = Encode(spans); });

  bool good = true;
  const double written = PerSpan(rounds, [&] {
    v1::TraceSpans message;
    good = good && message.ParseFromString(bytes);
    auto file = TimelineFile::Open("/tmp/timeline_spans.json", "bench");
    good = good && file.ok() && (*file)->Add(0, spans, 0, 0).ok() &&
           (*file)->Finish().ok();
  });
  std::remove("/tmp/timeline_spans.json");
  if (!good) {
    std::fprintf(stderr, "the timeline could not be written to /tmp\n");
    return false;
  }
  const auto percent = [&](double ns) {
    return ns * spans_per_step / (step_us * 1000) * 100;
  };
  std::printf(
      "ns of CPU time per span, and %% of a step of %.0f us with %.0f "
      "spans\n",
      step_us, spans_per_step);
  std::printf("training thread   %7.1f  %6.3f %%   (%.1f without --timeline)\n",
              with - without, percent(with - without), without);
  std::printf("to be sent        %7.1f  %6.3f %%\n", sent, percent(sent));
  std::printf("at the master     %7.1f  %6.3f %%\n", written, percent(written));
  std::printf("in all            %7.1f  %6.3f %%\n",
              with - without + sent + written,
              percent(with - without + sent + written));
  return true;
}

}  // namespace
}  // namespace elasticdl::trace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 50;
  const double step_us = argc > 2 ? std::atof(argv[2]) : 800;
  const double spans = argc > 3 ? std::atof(argv[3]) : 10;
  if (rounds < 1 || step_us <= 0 || spans <= 0) {
    std::fprintf(stderr,
                 "usage: timeline_spans [rounds] [microseconds per "
                 "step] [spans per step]\n");
    return 2;
  }
  return elasticdl::trace::Run(rounds, step_us, spans) ? 0 : 1;
}
