// Lists objects and watches them, so that the caller has their current state.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "elasticdl/kube/client.h"

namespace elasticdl::kube {

struct WatchEvent {
  enum class Kind {
    kListed,  // exists in a list: the first one, or a new one after a gap.
              // May repeat what is known.
    kAdded,   // these three as the server reports them
    kModified,
    kDeleted,  // `object` is its last known state. Also for objects that were
               // known before a gap and are not in the new list.
    kSynced,   // the list is complete; no object
    kTrouble,  // the server does not answer; `error` says why. Reported only
               // when that changes; the watch keeps trying.
    kRecovered,
  };
  Kind kind = Kind::kListed;
  Json object;
  absl::Status error;
};

// Thread-safe. One thread lists and watches: resumes after a disconnect from
// the last resourceVersion, takes bookmarks, lists again after 410, backs off
// (with jitter, at most 10 s) while the server is away.
class Watch {
 public:
  struct Options {
    Resource resource;
    std::string namespace_name;
    std::string selector;
    // The server ends each watch after about this time; a dead connection is
    // noticed a little later.
    absl::Duration watch_timeout = absl::Seconds(300);
    absl::Duration backoff_initial = absl::Milliseconds(200);
    absl::Duration backoff_max = absl::Seconds(10);
  };
  // Called on the watch's thread, in order. Must not block for long.
  using Sink = std::function<void(const WatchEvent& event)>;

  Watch(Transport& transport, Options options, Sink sink);
  // Stops and joins.
  ~Watch();

  // No event comes after it has returned. Idempotent; not from the sink.
  void Stop();

 private:
  class Loop;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace elasticdl::kube
