// Notices workers and servers that do not answer: their process is stopped, or
// it is cut off from the master. They are not lost yet (--worker_timeout), but
// whoever waits for them would like to know.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "elasticdl/rendezvous/stream_server.h"

namespace elasticdl::master {

using rendezvous::ConnectionId;

// Thread-compatible; pure. Whoever has said nothing for some seconds is asked
// (Ping), which costs nothing while all report themselves once a second. A
// worker answers from a thread of its stream: also while it compiles or trains.
class SilenceWatch {
 public:
  // Silent for so long: it is asked.
  static constexpr absl::Duration kQuiet = absl::Seconds(3);
  // So much later without an answer: it is silent.
  static constexpr absl::Duration kPatience = absl::Seconds(2);
  static constexpr absl::Duration kPeriod = absl::Milliseconds(500);
  // In one period: thousands of workers that wait for something must not keep
  // the master busy.
  static constexpr size_t kMostAsked = 100;

  // True: it was silent.
  bool OnHeard(absl::Time now, ConnectionId connection);
  // Its stream is closed.
  void Remove(ConnectionId connection) { peers_.erase(connection); }

  struct Silent {
    ConnectionId connection = 0;
    absl::Duration silence;
  };
  struct Turn {
    std::vector<ConnectionId> ask;
    // Each once.
    std::vector<Silent> silent;
  };
  // To be called when it is due; does nothing before.
  Turn OnTimer(absl::Time now);
  absl::Time next() const {
    return peers_.empty() ? absl::InfiniteFuture() : next_;
  }

 private:
  struct Peer {
    absl::Time heard;
    // InfiniteFuture: it was not asked since.
    absl::Time asked = absl::InfiniteFuture();
    bool silent = false;
  };

  std::map<ConnectionId, Peer> peers_;
  ConnectionId last_asked_ = 0;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace elasticdl::master
