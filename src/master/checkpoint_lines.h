// Combines log lines about checkpoints: a job may save one every few steps. The
// event log has all of them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace elasticdl::master {

// Thread-compatible.
class CheckpointLines {
 public:
  // A version is saved. Returns the line to log, or nothing soon after the last
  // line.
  std::string Saved(absl::Time now, const std::string& path,
                    absl::Duration duration);
  // The line about those that were not logged yet; empty if there are none.
  std::string Rest();

 private:
  absl::Time next_ = absl::InfinitePast();
  // Of the newest version.
  std::string newest_;
  // Saved since the last line.
  int64_t count_ = 0;
};

}  // namespace elasticdl::master
