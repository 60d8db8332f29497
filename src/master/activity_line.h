// What a job does while it works on no data, and how long it takes.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace elasticdl::master {

// Thread-compatible.
class ActivityLine {
 public:
  // Something else goes on from now on; empty: work on data. Returns a line
  // about what has ended if it took long, else "".
  std::string Set(std::string text, absl::Time now);

  const std::string& text() const { return text_; }
  // For how long.
  absl::Duration time(absl::Time now) const { return now - since_; }

 private:
  std::string text_;
  absl::Time since_ = absl::InfinitePast();
};

}  // namespace elasticdl::master
