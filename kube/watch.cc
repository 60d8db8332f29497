#include "elasticdl/kube/watch.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "elasticdl/common/clock.h"
#include "elasticdl/common/json_text.h"
#include "elasticdl/common/mutex.h"
#include "elasticdl/common/status.h"
#include "elasticdl/common/thread.h"
#include "resource.h"
#include "watch_core.h"

namespace elasticdl::kube {
namespace {

constexpr absl::Duration kListTimeout = absl::Seconds(30);
// The server may end a watch this much later than it was asked to.
constexpr absl::Duration kServerDelay = absl::Seconds(30);

WatchCore::Options CoreOptions(const Watch::Options& options) {
  WatchCore::Options core;
  core.backoff.initial = options.backoff_initial;
  core.backoff.max = options.backoff_max;
  core.healthy_after = options.backoff_max;
  return core;
}

}  // namespace

class Watch::Loop {
 public:
  Loop(Transport& transport, Options options, Sink sink)
      : transport_(transport),
        options_(std::move(options)),
        sink_(std::move(sink)),
        core_(CoreOptions(options_), std::random_device{}()),
        thread_("kube-watch", [this] { Run(); }) {}

  void Stop() {
    cancel_.Cancel();
    MutexLock lock(join_mu_);
    thread_.Join();
  }

 private:
  void Run() {
    while (true) {
      const WatchCore::Step step = core_.Next();
      if (!Sleep(step.delay)) return;
      if (step.resource_version.empty()) {
        List();
      } else {
        WatchFrom(step.resource_version);
      }
    }
  }

  // False when stopped.
  bool Sleep(absl::Duration delay) {
    const absl::Time until = Clock::Real().Now() + delay;
    while (!cancel_.cancelled()) {
      const absl::Duration left = until - Clock::Real().Now();
      if (left <= absl::ZeroDuration()) return true;
      pollfd fd = {cancel_.fd(), POLLIN, 0};
      poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    }
    return false;
  }

  Request MakeRequest() const {
    Request request;
    request.path = PathOf(options_.resource, options_.namespace_name);
    if (!options_.selector.empty()) {
      request.query.emplace_back("labelSelector", options_.selector);
    }
    return request;
  }

  void List() {
    const Request request = MakeRequest();
    absl::StatusOr<Response> response =
        transport_.Call(request, kListTimeout, &cancel_);
    if (cancel_.cancelled()) return;
    absl::Status status = response.status();
    if (status.ok()) status = ToStatus(request, *response);
    if (!status.ok()) {
      Emit(core_.OnList(status));
    } else {
      Emit(core_.OnList(ParseJson(response->body)));
    }
  }

  void WatchFrom(const std::string& version) {
    Request request = MakeRequest();
    request.query.emplace_back("watch", "true");
    request.query.emplace_back("allowWatchBookmarks", "true");
    request.query.emplace_back("resourceVersion", version);
    request.query.emplace_back(
        "timeoutSeconds",
        absl::StrCat(absl::ToInt64Seconds(options_.watch_timeout)));
    core_.OnWatchStart(Clock::Real().Now());
    const absl::StatusOr<Response> response = transport_.Stream(
        request, options_.watch_timeout + kServerDelay, &cancel_,
        [this](absl::string_view bytes) {
          Emit(core_.OnWatchBytes(bytes));
          return !core_.watch_broken() && !cancel_.cancelled();
        });
    if (cancel_.cancelled()) return;
    absl::Status status = response.status();
    if (status.ok()) status = ToStatus(request, *response);
    Emit(core_.OnWatchEnd(status, Clock::Real().Now()));
  }

  void Emit(const WatchCore::Events& events) {
    for (const WatchEvent& event : events) {
      if (cancel_.cancelled()) return;
      sink_(event);
    }
  }

  Transport& transport_;
  const Options options_;
  const Sink sink_;
  Cancellation cancel_;
  WatchCore core_;  // only the thread uses it
  Mutex join_mu_;   // Join is not thread-safe
  Thread thread_;   // last: it uses everything above
};

Watch::Watch(Transport& transport, Options options, Sink sink)
    : loop_(std::make_unique<Loop>(transport, std::move(options),
                                   std::move(sink))) {}

Watch::~Watch() { Stop(); }

void Watch::Stop() { loop_->Stop(); }

}  // namespace elasticdl::kube
