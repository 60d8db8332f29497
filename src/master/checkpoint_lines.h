// One line of the log for many checkpoints: a job may save one every few steps,
// and the event log has them all.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace elasticdl::master {

// Thread-compatible.
class CheckpointLines {
 public:
  // A version is saved. The line to log, or nothing: the last one was just now.
  std::string Saved(absl::Time now, const std::string& path,
                    absl::Duration duration);
  // The line about those that had none yet; empty when there are none.
  std::string Rest();

 private:
  absl::Time next_ = absl::InfinitePast();
  // Of the newest version.
  std::string newest_;
  // Saved since the last line.
  int64_t count_ = 0;
};

}  // namespace elasticdl::master
