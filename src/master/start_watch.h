// Notices that the workers of a job on this machine never become ready: there
// are more than its cores and memory can start in time. Each one that is late
// is replaced, so that without this the job would go on like that for ever.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace elasticdl::master {

// Thread-compatible.
class StartWatch {
 public:
  // A worker was killed before the job has trained anything: it was late, or
  // memory ran out. True: it is time to give up.
  bool OnWorkerKilled(absl::Time now, int64_t num_workers);
  // How many that were.
  int64_t killed() const { return killed_; }

 private:
  int64_t killed_ = 0;
  absl::Time first_;
};

}  // namespace elasticdl::master
