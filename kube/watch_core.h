// What a watch does next: state and events in, steps and events out. Pure; the
// thread around it (watch.cc) makes the calls.
//
//   state     what came                          next
//   --------  --------------------------------- -------------------------------
//   listing   a list                             watch from its version
//             an error                           trouble; list after a backoff
//   watching  an event, a bookmark               goes on; remembers its version
//             the end, or a break, of a watch    watch from the last version,
//             at
//               that gave something or lasted      once
//             the end of one that gave nothing   watch, after a backoff
//             410, as answer or as an event      list, at once; after a backoff
//                                                  when it happens again before
//                                                  any event
//             any other error before an event    trouble; list after a backoff
//             nonsense                           list after a backoff
//
// After trouble it lists, though a watch would do: a quiet watch does not tell
// that the server is back.
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
    // A watch that lasted this long was a good one although nothing happened.
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

  // What a list gave: the whole answer, or an error.
  Events OnList(const absl::StatusOr<Json>& list);

  // A watch is opened.
  void OnWatchStart(absl::Time now);
  // The next bytes of it, cut anywhere.
  Events OnWatchBytes(absl::string_view bytes);
  // This watch is of no more use: end it.
  bool watch_broken() const { return broken_; }
  // It has ended: OK (by the server, or by us as it was broken) or why.
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
  // OK unless the last thing told was trouble.
  absl::StatusCode told_ = absl::StatusCode::kOk;
  // Lists are answered but watches are refused (no rights): no list is a
  // recovery then.
  bool watch_refused_ = false;

  // Of the present watch.
  std::string partial_line_;
  absl::Time started_;
  bool got_something_ = false;
  bool broken_ = false;
  absl::Status broken_why_;
  // Of the last one: it ended with 410 and nothing has come since.
  bool expired_ = false;
};

}  // namespace elasticdl::kube
