// A small process beside a worker or a server: when that is killed, it closes
// the connections at once.
//
// The kernel frees the memory of a killed process before it closes its sockets:
// 5 ms later for 50 MB, more than 100 ms later for 1.5 GB in small pages.
// Others on the same host can watch its life sign
// (elasticdl/common/life_sign.h); those on other hosts, and in other pods, see
// only the connections. The sentinel is a child that shares the process's table
// of open files. It waits for the word of the life sign, and when that shows a
// death, it shuts the sockets down: the others see what they would have seen
// later anyway. It sends no message of its own, so there is nothing to
// authenticate or to fence.
#pragma once

#include "absl/status/status.h"

namespace elasticdl::process {

// Starts the sentinel of this process. Call it first thing in main, before any
// thread, socket and OwnLifeSign. The sentinel ends with the process, however
// that ends, and is in its group. It copies no memory, but keeps the pages of
// this moment that the process changes later.
absl::Status StartSentinel();

}  // namespace elasticdl::process
