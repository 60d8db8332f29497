// An HTTP server for a port that strangers may reach. httplib checks nothing
// before it has read a whole request: a line without an end takes any amount of
// memory, one byte now and then holds a thread for ever, a header may ask for
// the same page thousands of times, and connections wait in a list without an
// end. This one bounds all of that. One request per connection.
#pragma once

#include <httplib.h>

#include <cstddef>

#include "absl/time/time.h"

namespace elasticdl::master {

class BoundedHttpServer : public httplib::Server {
 public:
  // A request, its body included. Cookies of other programs on this host may
  // come along.
  static constexpr size_t kMostBytes = 64 << 10;
  // Until it is there. The network is near.
  static constexpr absl::Duration kMostTime = absl::Seconds(3);
  // More connections than this that wait for a thread are closed.
  static constexpr size_t kMostWaiting = 256;

  explicit BoundedHttpServer(size_t threads);

 private:
  bool process_and_close_socket(socket_t socket) override;
};

}  // namespace elasticdl::master
