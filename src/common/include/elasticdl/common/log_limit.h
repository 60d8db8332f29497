// A limit for log lines that strangers can cause: one per second, which says
// how many were left out since the one before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "elasticdl/common/mutex.h"

namespace elasticdl {

// Thread-safe.
class LogLimit {
 public:
  // Nothing: leave the line out. Otherwise how many were left out.
  std::optional<int64_t> Allow(absl::Time now) {
    MutexLock lock(mu_);
    if (now < next_) {
      ++left_out_;
      return std::nullopt;
    }
    next_ = now + absl::Seconds(1);
    const int64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

  // For the end of the line: "" or " (and 7 more)".
  static std::string Describe(int64_t left_out) {
    return left_out == 0 ? "" : absl::StrCat(" (and ", left_out, " more)");
  }

 private:
  Mutex mu_;
  absl::Time next_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace elasticdl
