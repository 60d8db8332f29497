// What a watch does next: state and events in, steps and events out. Pure; the
// thread around it (watch.cc) makes the calls.
//
//   state     what came                          next
//   --------  --------------------------------- -------------------------------
//   listing   a list                             watch from its version
//             an error                           trouble; list after a backoff
//   watching  an event, a bookmark               goes on; remembers its version
//             the watch ends or breaks after     watch from the last version,
//               events, or after a long time       at once
//             it ends soon, without events       watch, after a backoff
//             410, as answer or as an event      list, at once; after a backoff
//                                                  when it happens again before
//                                                  any event
//             any other error before an event    trouble; list after a backoff
//             bytes that cannot be parsed        list after a backoff
//
// After trouble it lists, although a watch would be enough: a watch without
// events does not show that the server is back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "elasticdl/common/backoff.h"
#include "elasticdl/kube/watch.h"

namespace elasticdl::kube {

// Thread-compatible.
class WatchCore {
 public:
  using Events = std::vector<WatchEvent>;

  struct Options {
    Backoff::Options backoff;
    // A watch that lasted this long counts as good even without events.
    absl::Duration healthy_after = absl::Seconds(10);
  };
  struct Step {
    // Wait this long, then watch from `resource_version`, or list when that is
    // empty.
    absl::Duration delay;
    std::string resource_version;
  };

  WatchCore(Options options, uint64_t seed);

  Step Next() const { return next_; }

  // The answer to a list, or the error.
  Events OnList(const absl::StatusOr<Json>& list);

  // A watch begins.
  void OnWatchStart(absl::Time now);
  // The next bytes of the watch, cut anywhere.
  Events OnWatchBytes(absl::string_view bytes);
  // This watch cannot be used any longer: end it.
  bool watch_broken() const { return broken_; }
  // The watch has ended: OK (the server ended it, or we did because it was
  // broken), or the error.
  Events OnWatchEnd(const absl::Status& status, absl::Time now);

 private:
  void OnLine(absl::string_view line, Events& out);
  void OnObject(const std::string& type, Json object, Events& out);
  void OnErrorEvent(const Json& status);
  void Break(absl::Status why);
  void Trouble(const absl::Status& error, Events& out);
  void Recovered(Events& out);
  void ListAfter(absl::Duration delay);
  void WatchAfter(absl::Duration delay);

  const Options options_;
  Backoff backoff_;
  Step next_;
  // Namespace/name -> last state.
  std::map<std::string, Json> known_;
  std::string resource_version_;
  // Not OK: trouble was reported last.
  absl::StatusCode told_ = absl::StatusCode::kOk;
  // Lists are answered but watches are refused (no rights). Then a list does
  // not mean that the trouble is over.
  bool watch_refused_ = false;

  // About the current watch.
  std::string partial_line_;
  absl::Time started_;
  bool got_something_ = false;
  bool broken_ = false;
  absl::Status broken_why_;
  // The last watch ended with 410, and there was no event since.
  bool expired_ = false;
};

}  // namespace elasticdl::kube
