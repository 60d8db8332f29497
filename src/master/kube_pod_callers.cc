#include "kube_pod_callers.h"

#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "elasticdl/common/clock.h"

namespace elasticdl::master {

// Push must never wait, so the queue has no limit; the pods of a job do.
PodCallers::Caller::Caller() : calls(std::numeric_limits<size_t>::max()) {}

PodCallers::PodCallers(Options options) : options_(std::move(options)) {
  for (Caller& caller : callers_) {
    caller.thread = Thread("pod-calls", [this, &caller] { Run(caller); });
  }
}

PodCallers::~PodCallers() { CloseAndJoin(); }

void PodCallers::Push(PodCall call) {
  const size_t index = std::hash<std::string>()(call.name) % kCallers;
  callers_[index].calls.Push(std::move(call));
}

void PodCallers::CloseAndJoin() {
  for (Caller& caller : callers_) caller.calls.Close();
  for (Caller& caller : callers_) caller.thread.Join();
}

void PodCallers::Run(Caller& caller) {
  Later later;
  while (true) {
    const absl::Duration wait =
        later.empty() ? absl::InfiniteDuration()
                      : later.begin()->first - Clock::Real().Now();
    std::optional<PodCall> call;
    if (wait > absl::ZeroDuration()) {
      call = caller.calls.Pop(wait);
    } else {
      call = std::move(later.begin()->second);
      later.erase(later.begin());
    }
    if (call.has_value()) {
      Make(caller, *std::move(call), later);
    } else if (caller.calls.closed()) {
      return;
    }
  }
}

void PodCallers::Make(Caller& caller, PodCall call, Later& later) {
  if (options_.make(call) || caller.calls.closed()) return;
  if (call.backoff == nullptr) {
    Backoff::Options backoff;
    backoff.initial = options_.retry_initial;
    backoff.max = options_.retry_max;
    call.backoff = std::make_shared<Backoff>(backoff, std::random_device{}());
  }
  const absl::Time at = Clock::Real().Now() + call.backoff->Next();
  later.emplace(at, std::move(call));
}

}  // namespace elasticdl::master
