// When the master of a local job is started again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"

namespace elasticdl::cli {

// Pure: the time is an argument. A master that is killed from outside now and
// then is always started again; one that cannot live is not.
class RelaunchRule {
 public:
  struct Options {
    // So often within `window`.
    size_t most = 5;
    absl::Duration window = absl::Minutes(5);
    // And so often in all: one that cannot live may die slowly.
    int64_t most_in_all = 100;
    // The first is started at once, the second after this time, each further
    // one after twice the time.
    absl::Duration delay = absl::Seconds(1);
  };

  explicit RelaunchRule(const Options& options) : options_(options) {}

  // The master was killed at `now`. How long to wait until it is started again;
  // nothing: it is not.
  std::optional<absl::Duration> OnKilled(absl::Time now);

  // How often it was.
  int64_t restarts() const { return restarts_; }

 private:
  const Options options_;
  // Of the last ones.
  std::deque<absl::Time> times_;
  int64_t restarts_ = 0;
};

}  // namespace elasticdl::cli
